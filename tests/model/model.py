"""Two workspaces as they must be, and what each call must answer. Standard library only, no input or output: a call is
judged by `expect`, sent by somebody else, and what came back is checked and learnt by `accept`.

The checks stand in their promised order: 401, 404, 403, 400 of the body, receipt or 409, 412, state, the operation.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tests.model import responses
from tests.model.operations import OF_RESOLVING_TOKENS, OF_TOKENS, OPERATIONS, Refusal, Refused
from tests.model.records import Action, AuditEntry, Caller, Json, Key, Receipt, Request, Run, Session, Skill, Token

RECEIPT_HOURS, ORPHAN_HOURS, AUDIT_HOURS, ACTION_HOURS = 7 * 24, 24, 365 * 24, 7 * 24
TOKEN_LIFE, TOKEN_LIFE_AT_MOST = timedelta(hours=24), timedelta(days=30)
MODEL_PREFIX = "openai-chat:"

Learn = Callable[[Json], None]


@dataclass(frozen=True)
class Expected:
    status: int
    # The code of a refusal.
    code: str | None = None
    # The bytes of an earlier answer.
    replay: bytes | None = None
    # Checks the body of a success and takes over what only the server could know.
    learn: Learn | None = None


class Model:
    def __init__(self, slots: int) -> None:
        """`slots`: how many runs of a workspace are worked on at the same time."""
        self.slots = slots
        self.keys: dict[str, Key] = {}
        self.tokens: dict[str, Token] = {}
        self.sessions: dict[str, Session] = {}
        self.runs: dict[str, Run] = {}
        self.actions: dict[str, Action] = {}
        self.skills: dict[str, Skill] = {}
        self.receipts: dict[tuple[str, str, str], Receipt] = {}
        self.audit: dict[str, list[AuditEntry]] = {}
        # Stored archives, and the hours since they were last pushed.
        self.archives: dict[bytes, int] = {}

    # --- judging a call ---

    def expect(self, caller: Caller, request: Request, now: datetime) -> Expected:
        operation = OPERATIONS[request.operation]
        try:
            if not self.is_alive(caller, now):
                raise Refused(Refusal.UNAUTHORIZED)
            subject = self._see(caller, request, operation.about)
            if isinstance(caller, Key) and operation.permission not in caller.permissions:
                # The interface lists no 403 for this one.
                hidden = request.operation == "list_api_keys"
                raise Refused(Refusal.NOT_FOUND if hidden else Refusal.FORBIDDEN)
            if request.archive is not None:
                # Kept before anything else is asked: a refusal from here on leaves it without a version.
                self.archives[request.archive] = 0
            if request.operation == "submit_input" and "text" not in (request.body or {}):
                raise Refused(Refusal.INVALID)
            receipt = self._receipt(caller, request)
            if receipt is not None:
                return Expected(receipt.status, replay=receipt.body)
            judge = getattr(self, f"_{request.operation}", None)
            learn = None if judge is None else judge(caller, subject, request, now)
        except Refused as refused:
            return Expected(refused.status, refused.code)
        return Expected(operation.status, learn=learn)

    def accept(self, caller: Caller, request: Request, expected: Expected, body: bytes) -> None:
        """After the answer that was expected."""
        answer: Json = json.loads(body) if body else {}
        if expected.learn is not None:
            expected.learn(answer)
        if request.key is not None:
            kept = responses.without_secret(body, answer)
            key = (_scope(caller), request.operation, request.key)
            self.receipts[key] = Receipt(_fingerprint(request), expected.status, kept)

    def is_alive(self, caller: Caller, now: datetime) -> bool:
        if isinstance(caller, Token):
            ended = caller.is_revoked or caller.key.is_revoked or caller.session.is_deleted
            return not ended and caller.expires_at > now
        return not caller.is_revoked and (caller.expires_at is None or caller.expires_at > now)

    def _see(self, caller: Caller, request: Request, kind: str | None) -> Any:
        own = caller.session if isinstance(caller, Token) else None
        if isinstance(caller, Token):
            visible = OF_TOKENS | (OF_RESOLVING_TOKENS if caller.may_resolve else set())
            if request.operation not in visible:
                raise Refused(Refusal.NOT_FOUND)
        if kind is None:
            return None
        known: dict[str, dict[str, Any]] = {
            "key": self.keys,
            "session": self.sessions,
            "token": self.tokens,
            "run": self.runs,
            "action": self.actions,
            "skill": self.skills,
        }
        found = known[kind].get(request.target[-1])
        session: Session | None = found if kind == "session" else getattr(found, "session", None)
        owner = found if session is None else session
        if owner is None or owner.workspace != caller.workspace:
            raise Refused(Refusal.NOT_FOUND)
        if session is not None and (session.is_deleted or own not in (None, session)):
            raise Refused(Refusal.NOT_FOUND)
        return found

    def _receipt(self, caller: Caller, request: Request) -> Receipt | None:
        if request.key is None:
            return None
        receipt = self.receipts.get((_scope(caller), request.operation, request.key))
        if receipt is not None and receipt.fingerprint != _fingerprint(request):
            raise Refused(Refusal.CONFLICT)
        return receipt

    def _note(self, workspace: str, action: str, object_id: str) -> None:
        self.audit[workspace].append(AuditEntry(action, object_id))

    # --- keys ---

    def add_key(self, key: Key) -> None:
        self.keys[key.id] = key

    def _create_api_key(self, caller: Key, _: None, request: Request, now: datetime) -> Learn:
        asked = request.body or {}
        permissions, expires_at = frozenset(asked["permissions"]), responses.moment(asked["expires_at"])
        if expires_at is not None and expires_at <= now:
            raise Refused(Refusal.INVALID)
        _check_within(caller, permissions, expires_at)

        def learn(answer: Json) -> None:
            key_id = str(answer["id"])
            key = Key(key_id, caller.workspace, asked["label"], permissions, key_id, expires_at, answer["secret"])
            self._learn_key(key, answer)
            self._note(caller.workspace, request.operation, key.id)

        return learn

    def _rotate_api_key(self, caller: Key, old: Key, request: Request, now: datetime) -> Learn:
        if old.is_replaced or not self.is_alive(old, now):
            raise Refused(Refusal.CONFLICT)
        _check_within(caller, old.permissions, old.expires_at)
        overlap_seconds = (request.body or {})["overlap_seconds"]

        def learn(answer: Json) -> None:
            key_id = str(answer["id"])
            key = Key(key_id, old.workspace, old.label, old.permissions, old.lineage, old.expires_at, answer["secret"])
            self._learn_key(key, answer)
            old.is_replaced = True
            if overlap_seconds == 0:
                old.is_revoked = True
            else:
                end = now + timedelta(seconds=overlap_seconds)
                old.expires_at = end if old.expires_at is None else min(old.expires_at, end)
            self._note(old.workspace, request.operation, old.id)

        return learn

    def _revoke_api_key(self, _: Key, key: Key, request: Request, __: datetime) -> Learn:
        def learn(answer: Json) -> None:
            if not key.is_revoked:
                self._note(key.workspace, request.operation, key.id)
            key.is_revoked = True
            responses.check_key(key, answer)

        return learn

    def _get_api_key(self, _: Key, key: Key, __: Request, ___: datetime) -> Learn:
        return lambda answer: responses.check_key(key, answer)

    def _learn_key(self, key: Key, answer: Json) -> None:
        assert key.id not in self.keys, "an id was given twice"
        assert key.secret not in {one.secret for one in self.keys.values()}, "a secret was given twice"
        self.add_key(key)
        assert key.secret.startswith(answer["prefix"])
        responses.check_key(key, {name: value for name, value in answer.items() if name != "secret"})

    # --- sessions and their tokens ---

    def _create_session(self, caller: Key, _: None, request: Request, __: datetime) -> Learn:
        asked = request.body or {}
        skills = responses.skills_of(asked)
        self._check_skills(caller.workspace, skills)

        def learn(answer: Json) -> None:
            tag = asked["model"].removeprefix(MODEL_PREFIX)
            session = Session(str(answer["id"]), caller.workspace, tag, asked["title"], skills)
            assert session.id not in self.sessions, "an id was given twice"
            self.sessions[session.id] = session
            responses.check_session(session, answer)
            self._note(session.workspace, request.operation, session.id)

        return learn

    def _get_session(self, _: Caller, session: Session, __: Request, ___: datetime) -> Learn:
        return lambda answer: responses.check_session(session, answer)

    def _change_session(self, _: Key, session: Session, request: Request, __: datetime) -> Learn:
        _check_unchanged(request, session.revision)
        asked = request.body or {}
        skills = responses.skills_of(asked) if "skills" in asked else session.skills
        self._check_skills(session.workspace, [one for one in skills if one not in session.skills])
        wanted = (asked.get("title", session.title), asked.get("archived", session.is_archived), skills)

        def learn(answer: Json) -> None:
            if wanted != (session.title, session.is_archived, session.skills):
                session.title, session.is_archived, session.skills = wanted
                session.revision += 1
                self._note(session.workspace, request.operation, session.id)
            responses.check_session(session, answer)

        return learn

    def _delete_session(self, _: Key, session: Session, request: Request, __: datetime) -> Learn:
        _check_unchanged(request, session.revision)

        def learn(_: Json) -> None:
            for run in [*session.waiting, *filter(None, [session.active])]:
                self._end(run, "cancelled")
            session.is_deleted = True
            for key in [key for key in self.receipts if key[0] == session.id]:
                del self.receipts[key]
            self._note(session.workspace, request.operation, session.id)

        return learn

    def _create_session_token(self, caller: Key, session: Session, request: Request, now: datetime) -> Learn:
        asked = responses.moment((request.body or {}).get("expires_at"))
        if asked is not None and not now < asked <= now + TOKEN_LIFE_AT_MOST:
            raise Refused(Refusal.INVALID)
        if asked is not None:
            _check_within(caller, frozenset(), asked)

        def learn(answer: Json) -> None:
            expires_at = responses.moment(answer["expires_at"])
            assert expires_at is not None
            limit = asked or min(now + TOKEN_LIFE, caller.expires_at or now + TOKEN_LIFE)
            assert expires_at == limit or (asked is None and responses.is_about(expires_at, limit))
            may_resolve = (request.body or {}).get("may_resolve", False)
            token = Token(str(answer["id"]), session, caller, expires_at, answer["token"], may_resolve=may_resolve)
            assert token.id not in self.tokens, "an id was given twice"
            self.tokens[token.id] = token
            self._note(session.workspace, request.operation, token.id)

        return learn

    def _revoke_session_token(self, _: Key, token: Token, request: Request, __: datetime) -> Learn:
        def learn(answer: Json) -> None:
            if not token.is_revoked:
                self._note(token.workspace, request.operation, token.id)
            token.is_revoked = True
            responses.check_token(token, answer)

        return learn

    def _check_skills(self, workspace: str, wanted: list[tuple[str, int | None]]) -> None:
        for skill_id, version in wanted:
            skill = self.skills.get(skill_id)
            if skill is None or skill.workspace != workspace or skill.is_archived:
                raise Refused(Refusal.INVALID)
            if not skill.versions or (version is not None and version > len(skill.versions)):
                raise Refused(Refusal.INVALID)

    # --- inputs and runs ---

    def _submit_input(self, _: Caller, session: Session, request: Request, __: datetime) -> Learn:
        if session.is_archived:
            raise Refused(Refusal.CONFLICT)
        asked = request.body or {}
        text, delivery = asked["text"], asked.get("delivery", "steer")

        def learn(answer: Json) -> None:
            run = session.active
            if run is not None and delivery == "interrupt":
                self._end_only(run, "cancelled")
                self._note(session.workspace, "cancel_run", run.id)
            if run is None or delivery != "steer":
                assert answer["outcome"] == "new_run", answer
                assert answer["run_id"] not in self.runs, "an id was given twice"
                is_pending = run is not None and delivery == "queue"
                run = self._add_run(session, answer["run_id"], "pending" if is_pending else "queued")
            else:
                assert answer == {"outcome": "steered", "run_id": run.id}
            run.accepted += 1
            run.pending.append(text)
            session.log.append(("input.accepted", run.id, (text,)))

        return learn

    def _get_run(self, _: Caller, run: Run, __: Request, ___: datetime) -> Learn:
        return lambda answer: responses.check_run(run, answer)

    def _cancel_run(self, _: Caller, run: Run, request: Request, __: datetime) -> Learn:
        def learn(answer: Json) -> None:
            discarded = 0
            if run.state in ("pending", "queued", "running", "waiting"):
                discarded = len(run.pending)
                self._end(run, "cancelled")
                self._note(run.session.workspace, request.operation, run.id)
            assert len(answer.pop("discarded_input_ids")) == discarded
            responses.check_run(run, answer)

        return learn

    def _get_action(self, _: Caller, action: Action, __: Request, ___: datetime) -> Learn:
        return lambda answer: responses.check_action(action, answer)

    def _resolve_action(self, _: Caller, action: Action, request: Request, __: datetime) -> Learn:
        answered = request.body or {}
        if answered["decision"] not in ("allow", "deny"):
            raise Refused(Refusal.INVALID)
        if action.state != "open" and action.resolution != answered:
            raise Refused(Refusal.CONFLICT)

        def learn(answer: Json) -> None:
            if action.state == "open":
                self._close(action, "resolved", answered)
                self._note(action.session.workspace, request.operation, action.id)
            responses.check_action(action, answer)

        return learn

    def wait(self, run: Run, action_ids: list[str]) -> None:
        """The model has made calls that need approvals."""
        run.session.unanswered = 0
        run.state = "waiting"
        for action_id in action_ids:
            assert action_id not in self.actions, "an id was given twice"
            self.actions[action_id] = Action(action_id, run)
            run.actions.append(self.actions[action_id])
            run.session.log.append(("action.required", run.id, ()))

    def _close(self, action: Action, state: str, resolution: Json | None = None) -> None:
        """The run continues with the last of its answers."""
        action.state, action.resolution = state, resolution
        action.session.log.append(("action.resolved", action.run.id, ()))
        if action.run.state == "waiting" and not action.run.waiting_for:
            action.run.state = "queued"

    def _add_run(self, session: Session, run_id: str, state: str = "queued") -> Run:
        run = self.runs[run_id] = Run(run_id, session, state)
        session.runs.append(run)
        return run

    def active(self, workspace: str) -> list[Run]:
        mine = [one for one in self.sessions.values() if one.workspace == workspace and not one.is_deleted]
        return [one.active for one in mine if one.active is not None]

    def begin(self, run: Run) -> None:
        """A worker took it up."""
        run.state = "running"
        run.attempts += 1
        if run.attempts == 1:
            # Later attempts keep it.
            run.skill = self._skill_of(run.session)
        run.session.log.append(("run.started", run.id, ()))
        self._ask(run)

    def answer(self, run: Run, *, with_call: bool) -> None:
        """The model has answered. It is asked again after a call, or if something came in meanwhile."""
        run.session.unanswered = 0
        if with_call or run.pending:
            self._ask(run)
        else:
            self._end(run, "succeeded")

    def fail(self, run: Run, next_run_id: str | None) -> None:
        """The provider refused the question. Later ones do not repeat what was not answered."""
        if run.session.unanswered:
            del run.session.taken[-run.session.unanswered :]
            run.session.unanswered = 0
        left = list(run.pending)
        assert (next_run_id is not None) == bool(left), "what was not taken up starts the next run"
        if next_run_id is None:
            self._end(run, "failed")
        else:
            # Before pending runs.
            self._end_only(run, "failed")
            assert next_run_id not in self.runs, "an id was given twice"
            following = self._add_run(run.session, next_run_id)
            following.accepted, following.pending = len(left), left

    def _ask(self, run: Run) -> None:
        session = run.session
        session.log += [("input.consumed", run.id, (text,)) for text in run.pending]
        session.taken += run.pending
        session.unanswered += len(run.pending)
        session.asked += 1
        run.consumed += len(run.pending)
        run.pending = []

    def _end(self, run: Run, state: str) -> None:
        self._end_only(run, state)
        session = run.session
        if session.active is None and session.waiting:
            session.waiting[0].state = "queued"

    def _end_only(self, run: Run, state: str) -> None:
        """Without starting the next pending run."""
        run.state = state
        for action in run.actions:
            if action.state == "open":
                self._close(action, "cancelled")
        discarded: tuple[str, ...] = ()
        if state == "cancelled":
            discarded, run.pending = tuple(run.pending), []
            run.session.log += [("input.discarded", run.id, (text,)) for text in discarded]
        run.session.log.append((f"run.{state}", run.id, discarded))

    # --- skills ---

    def _create_skill(self, caller: Key, _: None, request: Request, __: datetime) -> Learn:
        self._check_name_free(caller.workspace, (request.body or {})["name"])

        def learn(answer: Json) -> None:
            skill = Skill(str(answer["id"]), caller.workspace, (request.body or {})["name"])
            assert skill.id not in self.skills, "an id was given twice"
            self.skills[skill.id] = skill
            responses.check_skill(skill, answer)
            self._note(skill.workspace, request.operation, skill.id)

        return learn

    def _get_skill(self, _: Key, skill: Skill, __: Request, ___: datetime) -> Learn:
        return lambda answer: responses.check_skill(skill, answer)

    def _change_skill(self, _: Key, skill: Skill, request: Request, __: datetime) -> Learn:
        _check_unchanged(request, skill.revision)
        asked = request.body or {}
        default = asked.get("default_version", skill.default_version)
        if default is not None and default > len(skill.versions):
            raise Refused(Refusal.INVALID)
        wanted = (asked.get("name", skill.name), default, asked.get("archived", skill.is_archived))
        if not wanted[2] and (skill.is_archived or wanted[0] != skill.name):
            self._check_name_free(skill.workspace, wanted[0])

        def learn(answer: Json) -> None:
            if wanted != (skill.name, skill.default_version, skill.is_archived):
                skill.name, skill.default_version, skill.is_archived = wanted
                skill.revision += 1
                self._note(skill.workspace, request.operation, skill.id)
            responses.check_skill(skill, answer)

        return learn

    def _check_name_free(self, workspace: str, name: str) -> None:
        active = [skill for skill in self.skills.values() if skill.workspace == workspace and not skill.is_archived]
        if any(skill.name == name for skill in active):
            raise Refused(Refusal.CONFLICT)

    def _push_skill_version(self, _: Key, skill: Skill, request: Request, __: datetime) -> Learn:
        _check_unchanged(request, skill.revision)
        if skill.is_archived:
            raise Refused(Refusal.CONFLICT)
        archive = request.archive
        assert archive is not None

        def learn(answer: Json) -> None:
            skill.versions.append(archive)
            skill.revision += 1
            responses.check_version(skill, len(skill.versions), answer)
            self._note(skill.workspace, request.operation, answer["id"])

        return learn

    def _skill_of(self, session: Session) -> bytes | None:
        """The archive that a run of this session works with from its beginning."""
        for skill_id, pinned in session.skills:
            skill = self.skills[skill_id]
            version = pinned or skill.default_version or len(skill.versions)
            return skill.versions[version - 1] if version else None
        return None

    # --- time ---

    def let_pass(self, hours: int) -> None:
        for key in self.keys.values():
            if key.expires_at is not None:
                key.expires_at -= timedelta(hours=hours)
        for token in self.tokens.values():
            token.expires_at -= timedelta(hours=hours)
        for receipt in self.receipts.values():
            receipt.hours += hours
        for entry in [entry for entries in self.audit.values() for entry in entries]:
            entry.hours += hours
        self.archives = {archive: age + hours for archive, age in self.archives.items()}
        for action in self.actions.values():
            if action.state == "open" and not action.session.is_deleted:
                action.hours += hours
                if action.hours >= ACTION_HOURS:
                    self._close(action, "expired")

    def sweep(self) -> None:
        self.receipts = {key: one for key, one in self.receipts.items() if one.hours < RECEIPT_HOURS}
        self.audit = {
            workspace: [entry for entry in entries if entry.hours < AUDIT_HOURS]
            for workspace, entries in self.audit.items()
        }
        needed = {archive for skill in self.skills.values() for archive in skill.versions}
        self.archives = {
            archive: hours for archive, hours in self.archives.items() if hours < ORPHAN_HOURS or archive in needed
        }


def _scope(caller: Caller) -> str:
    return caller.session.id if isinstance(caller, Token) else caller.lineage


def _fingerprint(request: Request) -> object:
    return request.target, json.dumps(request.body, sort_keys=True), request.archive


def _check_within(caller: Key, permissions: frozenset[str], expires_at: datetime | None) -> None:
    if not permissions <= caller.permissions:
        raise Refused(Refusal.FORBIDDEN)
    if caller.expires_at is not None and (expires_at is None or expires_at > caller.expires_at):
        raise Refused(Refusal.FORBIDDEN)


def _check_unchanged(request: Request, revision: int) -> None:
    if request.if_match not in (None, "*", f'"{revision}"'):
        raise Refused(Refusal.STALE)

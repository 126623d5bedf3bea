"""Sends what the rules of the machine ask for, and compares every answer, and everything that is there afterwards, with
the model."""

import hashlib
import json
import re
import time
from datetime import UTC, datetime
from itertools import count
from typing import Any, ClassVar
from uuid import UUID

import httpx
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine
from hypothesis.strategies._internal.featureflags import FeatureFlags

from tests.contract.provider_server import Reply
from tests.model import responses
from tests.model.environment import ACTIVE_RUNS, Environment
from tests.model.model import Expected, Model
from tests.model.operations import OPERATIONS
from tests.model.records import AuditEntry, Caller, Json, Key, Request, Run, Session, Skill
from tests.world import bundle

# Only a fault takes this long.
SETTLE_SECONDS = 60.0
ARCHIVES = 4
_CONTENT = re.compile(r"content [0-9]+")
_UNFINISHED = "SELECT session_id, id, state FROM runs WHERE workspace_id = ANY (%s) AND finished_at IS NULL"
_OPEN_ACTIONS = "SELECT id FROM actions WHERE workspace_id = ANY (%s) AND state = 'open'"
_RECEIPTS = "SELECT scope_id, operation, key FROM receipts WHERE scope_id = ANY (%s)"
_VERSIONS = "SELECT skill_id, version FROM skill_versions WHERE skill_id = ANY (%s) ORDER BY skill_id, version"
_KEYS = "SELECT id, revoked_at IS NOT NULL FROM api_keys WHERE workspace_id = ANY (%s)"
_ARCHIVES = "SELECT sha256 FROM blobs WHERE sha256 = ANY (%s)"


class Driver(RuleBasedStateMachine):
    environment: ClassVar[Environment]
    # Hypothesis leaves most rules out of most sequences, others each time. That pays with hundreds of sequences only.
    every_rule: ClassVar[bool]

    def __init__(self) -> None:
        super().__init__()
        if self.every_rule:
            self._rules_strategy.enabled_rules_strategy = st.just(FeatureFlags())
        self.model = Model(ACTIVE_RUNS)
        self.roots: dict[str, Key] = {}
        self.archives: list[bytes] = []
        self.history: list[tuple[Caller, Request]] = []
        self._numbers = count(1)
        self._open_workspaces()

    def root(self) -> Key:
        return next(iter(self.roots.values()))

    def _open_workspaces(self) -> None:
        for root in (self.environment.new_workspace(), self.environment.new_workspace()):
            self.roots[root.workspace] = root
            self.model.add_key(root)
            found = self.walk(root, "list_audit_events", order="asc") or []
            self.model.audit[root.workspace] = [AuditEntry(one["action"], one["object_id"]) for one in found]
            # The other workspace pushes the same archives.
            texts = [
                f"---\nname: skill\ndescription: It is content {number}.\n---\n{self.root().workspace}\n"
                for number in range(ARCHIVES)
            ]
            self.archives = [bundle(**{"SKILL.md": text}) for text in texts]

    # --- calls ---

    def name(self, kind: str) -> str:
        return f"{kind}-{next(self._numbers)}"

    def request(self, operation: str, *target: str, with_key: bool = False, **parts: Any) -> Request:
        return Request(operation, target, key=self.name("idempotency") if with_key else None, **parts)

    def change(self, caller: Caller, request: Request, *, indent: int | None = None) -> str | None:
        """The id that a success shows, unless it is only shown again."""
        now = datetime.now(UTC)
        expected = self.model.expect(caller, request, now)
        answer = self._send(caller, request, indent)
        self._compare(expected, answer)
        self.history.append((caller, request))
        if expected.code is not None or expected.replay is not None:
            return None
        self.model.accept(caller, request, expected, answer.content)
        self.settle()
        shown_id: str | None = answer.json().get("id") if answer.content else None
        return shown_id

    def read(self, caller: Caller, operation: str, *target: str) -> None:
        request = Request(operation, target)
        expected = self.model.expect(caller, request, datetime.now(UTC))
        answer = self._send(caller, request)
        self._compare(expected, answer)
        if expected.code is None and expected.learn is not None:
            expected.learn(answer.json())

    def walk(self, caller: Caller, operation: str, *target: str, **query: Any) -> list[Json] | None:
        """All items of a list, page by page. None where it is refused, as it must be."""
        items: list[Json] = []
        query = {"limit": 200, **query}
        expected = self.model.expect(caller, Request(operation, target), datetime.now(UTC))
        while True:
            answer = self._send(caller, Request(operation, target), query=query)
            self._compare(expected, answer)
            if expected.code is not None:
                return None
            page = answer.json()
            assert len(page["items"]) <= query["limit"]
            items += page["items"]
            if page["next_cursor"] is None:
                return items
            query["after"] = page["next_cursor"]

    def _send(
        self, caller: Caller, request: Request, indent: int | None = None, query: Json | None = None
    ) -> httpx.Response:
        operation = OPERATIONS[request.operation]
        headers = {"Authorization": f"Bearer {caller.secret}"}
        content = request.archive
        if request.operation == "list_api_keys":
            headers["Service-Workspace"] = caller.workspace
        if request.body is not None:
            headers["Content-Type"], content = "application/json", json.dumps(request.body, indent=indent).encode()
        elif content is not None:
            headers["Content-Type"] = "application/gzip"
        if request.key is not None:
            headers["Idempotency-Key"] = request.key
        if request.if_match is not None:
            headers["If-Match"] = request.if_match
        path = operation.path.format(*request.target)
        return self.environment.http.request(operation.method, path, headers=headers, content=content, params=query)

    def _compare(self, expected: Expected, answer: httpx.Response) -> None:
        assert answer.status_code == expected.status, f"expected {expected}: {answer.status_code} {answer.text}"
        assert answer.headers.get("Idempotency-Replayed") == (None if expected.replay is None else "true")
        if expected.code is not None:
            assert responses.error_of(answer.content) == expected.code
        if expected.replay is not None:
            assert answer.content == expected.replay, "another answer than the first time"

    # --- runs ---

    def reply(self, run: Run, reply: Reply) -> None:
        self.environment.model.answer(run.session.tag, reply)

    def ended(self, run: Run) -> None:
        """Until the server says so of a run that the model's last reply must have ended."""
        deadline = time.monotonic() + SETTLE_SECONDS
        root = self.roots[run.session.workspace]
        while self._send(root, Request("get_run", (run.id,))).json()["finished_at"] is None:
            assert time.monotonic() < deadline, f"{run} has not ended"
            time.sleep(0.01)

    def waiting_for(self, run: Run) -> list[str]:
        """The actions of a run that the model's last reply must have made wait, oldest first."""
        deadline = time.monotonic() + SETTLE_SECONDS
        root = self.roots[run.session.workspace]
        while not (waiting_for := self._send(root, Request("get_run", (run.id,))).json()["waiting_for"]):
            assert time.monotonic() < deadline, f"{run} does not wait"
            time.sleep(0.01)
        return sorted(waiting_for)

    def actions_expire(self) -> None:
        """Until workers have closed those that are overdue."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while self.environment.has_overdue_actions():
            assert time.monotonic() < deadline, "actions are overdue"
            time.sleep(0.05)

    def settle(self) -> None:
        """Until every run is where the model says: its question waits, or it waits for a slot. Which of several gets
        a free slot is the server's to say."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while not all(self._is_settled(workspace) for workspace in self.roots):
            assert time.monotonic() < deadline, f"runs are not where they must be: {self._all_active()}"
            self.environment.model.wait_for_change(0.05)

    def _is_settled(self, workspace: str) -> bool:
        questions = self.environment.model.questions()
        active = self.model.active(workspace)
        running = [run for run in active if run.state == "running"]
        queued = [run for run in active if run.state == "queued"]

        def asks(run: Run, times: int) -> bool:
            return questions.get(run.session.tag, (0,))[0] == times

        begun = [run for run in queued if asks(run, run.session.asked + 1)]
        if len(begun) != min(ACTIVE_RUNS - len(running), len(queued)):
            return False
        if not all(asks(run, run.session.asked) for run in running):
            return False
        for run in begun:
            self.model.begin(run)
        for run in [*running, *begun]:
            question = questions[run.session.tag][1]
            assert question.inputs == run.session.taken, "what the model was told is not what was taken up"
            assert _CONTENT.findall(question.instructions) == self._contents(run.skill), "another skill"
        return True

    def _contents(self, archive: bytes | None) -> list[str]:
        return [] if archive is None else [f"content {self.archives.index(archive)}"]

    def _all_active(self) -> list[Run]:
        return [run for workspace in self.roots for run in self.model.active(workspace)]

    # --- what must be there ---

    def check_stored(self) -> None:
        """Cheap, after each step."""
        rows = self.environment.fetch(_UNFINISHED, [UUID(one) for one in self.roots])
        unfinished = {(str(session_id), str(run_id), state) for session_id, run_id, state in rows}
        known = self._all_active() + [run for one in self.model.sessions.values() for run in one.waiting]
        assert unfinished == {(run.session.id, run.id, run.state) for run in known}, "active and pending runs"
        found = {str(one) for (one,) in self.environment.fetch(_OPEN_ACTIONS, [UUID(one) for one in self.roots])}
        assert found == {action_id for run in known for action_id in run.waiting_for}, "open actions"
        sessions = [one.id for one in self.model.sessions.values() if not one.is_deleted]
        scopes = [UUID(one) for one in [*sessions, *self.model.keys]]
        receipts = {(str(scope), operation, key) for scope, operation, key in self.environment.fetch(_RECEIPTS, scopes)}
        assert receipts == set(self.model.receipts), "receipts"
        pushed = [
            (str(one), number) for one, number in self.environment.fetch(_VERSIONS, [*map(UUID, self.model.skills)])
        ]
        for skill in self.model.skills.values():
            numbers = [number for skill_id, number in pushed if skill_id == skill.id]
            assert numbers == list(range(1, len(skill.versions) + 1)), "versions"
        keys = {
            str(key_id): revoked for key_id, revoked in self.environment.fetch(_KEYS, [UUID(one) for one in self.roots])
        }
        assert keys == {key.id: key.is_revoked for key in self.model.keys.values()}, "keys"

    def check_all(self) -> None:
        for workspace, root in self.roots.items():
            self.check_keys(workspace, self.walk(root, "list_api_keys", order="asc"))
            self.check_sessions(root)
            self.check_skills(root)
            found = self.walk(root, "list_audit_events", order="asc", limit=50) or []
            told = [(entry.action, entry.object_id) for entry in self.model.audit[workspace]]
            assert [(one["action"], one["object_id"]) for one in found] == told, "audit events"
        self.check_archives()

    def check_keys(self, workspace: str, found: list[Json] | None) -> None:
        if found is None:
            return
        keys = [key for key in self.model.keys.values() if key.workspace == workspace]
        assert [one["id"] for one in found] == [key.id for key in keys], "listed keys"
        for key, one in zip(keys, found, strict=True):
            responses.check_key(key, one)

    def check_sessions(self, root: Key) -> None:
        mine = [one for one in self.model.sessions.values() if one.workspace == root.workspace and not one.is_deleted]
        for archived in (False, True):
            found = self.walk(root, "list_sessions", archived=str(archived).lower(), limit=3) or []
            listed = [one for one in reversed(mine) if one.is_archived == archived]
            assert [one["id"] for one in found] == [session.id for session in listed], "listed sessions"
            for session, one in zip(listed, found, strict=True):
                responses.check_listed_session(session, one)
        for session in mine:
            self.check_session(root, session)
            self.check_actions(root, session)

    def check_session(self, caller: Caller, session: Session) -> None:
        log = self.walk(caller, "list_session_events", session.id)
        if log is not None:
            assert responses.told(log) == session.log, "the log"
        runs = self.walk(caller, "list_session_runs", session.id, order="asc", limit=2)
        if runs is not None:
            assert len(runs) == len(session.runs)
            for run, one in zip(session.runs, runs, strict=True):
                responses.check_run(run, one)
        tokens = self.walk(caller, "list_session_tokens", session.id, order="asc", limit=2)
        if tokens is not None:
            mine = [one for one in self.model.tokens.values() if one.session is session]
            assert len(tokens) == len(mine)
            for token, one in zip(mine, tokens, strict=True):
                responses.check_token(token, one)

    def check_actions(self, root: Key, session: Session) -> None:
        found = self.walk(root, "list_actions", session_id=session.id, order="asc", limit=2) or []
        actions = [action for action in self.model.actions.values() if action.session is session]
        assert len(found) == len(actions)
        for action, one in zip(sorted(actions, key=lambda action: action.id), found, strict=True):
            responses.check_action(action, one)

    def check_skills(self, root: Key) -> None:
        mine = [one for one in self.model.skills.values() if one.workspace == root.workspace]
        for archived in (False, True):
            found = self.walk(root, "list_skills", archived=str(archived).lower(), limit=2) or []
            listed = [one for one in reversed(mine) if one.is_archived == archived]
            assert [one["id"] for one in found] == [skill.id for skill in listed], "listed skills"
            for skill, one in zip(listed, found, strict=True):
                responses.check_skill(skill, one)
        for skill in mine:
            self.check_versions(root, skill)

    def check_versions(self, caller: Caller, skill: Skill) -> None:
        found = self.walk(caller, "list_skill_versions", skill.id, order="asc", limit=2)
        if found is None:
            return
        assert [one["version"] for one in found] == list(range(1, len(skill.versions) + 1))
        for number, archive in enumerate(skill.versions, 1):
            responses.check_version(skill, number, found[number - 1])
            headers = {"Authorization": f"Bearer {caller.secret}"}
            answer = self.environment.http.get(f"/v1/skills/{skill.id}/versions/{number}/bundle", headers=headers)
            assert answer.status_code == 200
            assert answer.content == archive, "another archive than was pushed"

    def check_archives(self) -> None:
        """Those that nothing names are stored until a sweep finds them old, and no longer."""
        names = {hashlib.sha256(archive).digest(): archive for archive in self.archives}
        stored = {names[sha256] for (sha256,) in self.environment.fetch(_ARCHIVES, list(names))}
        assert stored == set(self.model.archives), "stored archives"

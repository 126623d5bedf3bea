"""Random sequences of calls by random callers, of replies by the model that works on the runs, of time and of sweeps.

None in place of a caller is the first key of the workspace that the call is about, so that most calls get through.
"""

import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, MultipleResults, consumes, initialize, invariant, multiple, precondition, rule

from tests.model.driver import ARCHIVES, Driver
from tests.model.model import MODEL_PREFIX
from tests.model.paused_provider import ANSWER, ASKING, ASKING_TOOL, CALL, FAILURE
from tests.model.records import PERMISSIONS, Caller, Json, Key, Request, Run, Session, Skill, Token

# Multiples of eleven hours: no sum of them comes near a day, a week or a year, where the seconds of a test would count.
HOURS = st.sampled_from([11, 33, 99, 176, 11 * 799])
# Five hours beside them. 0: in the past. None: for ever.
LIVES = st.sampled_from([None, None, 0, 11 + 5, 33 + 5, 99 + 5, 77 * 11 + 5])
IF_MATCH = st.sampled_from([None, None, None, "current", "stale", "*"])
ANY = st.integers(0, 200)
WITH_KEY = st.sampled_from([True, True, False])
DELIVERIES = st.sampled_from([None, None, "queue", "interrupt"])
# What makes another request of one.
OTHERWISE: dict[str, Json] = {
    "create_api_key": {"label": "another"},
    "rotate_api_key": {"overlap_seconds": 1},
    "create_session": {"title": "another"},
    "change_session": {"title": "another"},
    # Not null, which means the same as none at all.
    "create_session_token": {"expires_at": (datetime.now(UTC) + timedelta(hours=5)).isoformat()},
    "submit_input": {"text": "another"},
    "resolve_action": {"decision": "deny", "message": "another"},
    "create_skill": {"name": "another"},
    "change_skill": {"name": "another"},
}


class Machine(Driver):
    keys: Bundle[Key] = Bundle("keys")
    tokens: Bundle[Token] = Bundle("tokens")
    callers: Bundle[Caller] = Bundle("callers")
    sessions: Bundle[Session] = Bundle("sessions")
    skills: Bundle[Skill] = Bundle("skills")
    anybody = st.one_of(st.none(), callers)

    # Something of each kind from the start: a sequence is too short to wait for it.

    @initialize(target=callers)
    def first_callers(self) -> MultipleResults[Caller]:
        return multiple(*self.roots.values())

    @initialize(targets=(keys, callers))
    def first_keys(self) -> MultipleResults[Key]:
        strong = self.new_key(self.root(), list(PERMISSIONS), 33 + 5, with_key=True)
        weak = self.new_key(self.root(), ["session.manage", "skill.manage"], None, with_key=True)
        return multiple(*strong, *weak)

    @initialize(target=sessions)
    def first_sessions(self) -> MultipleResults[Session]:
        made = [self.new_session(self.root(), [], with_key=with_key) for with_key in (False, True)]
        return multiple(*(session for one in made for session in one))

    @initialize(target=skills)
    def first_skill(self) -> MultipleResults[Skill]:
        (skill,) = made = self.new_skill(self.root(), with_key=True)
        for archive in (0, 1):
            self.push(self.root(), skill, archive, None, with_key=True)
        # Here, since few sequences come to it: a run works with the default version and not with the latest.
        self.work(None, skill, pinned=None, default=1, with_key=True)
        self.answer(self.running()[-1], with_call=False)
        return made

    @initialize(targets=(tokens, callers))
    def first_token(self) -> MultipleResults[Token]:
        (session,) = self.new_session(self.root(), [], with_key=False)
        return self.new_token(self.root(), session, None, with_key=True)

    @initialize(target=sessions)
    def first_actions(self) -> MultipleResults[Session]:
        """A run that waits for the second of two answers."""
        (session,) = made = self.new_session(self.root(), [], with_key=False)
        self.submit(self.root(), session, with_key=False)
        assert session.active is not None
        self.need_approvals(session.active, 2)
        body = {"decision": "allow"}
        self.change(self.root(), self.request("resolve_action", session.active.waiting_for[0], body=body))
        return made

    # --- keys ---

    @rule(
        targets=(keys, callers),
        caller=st.one_of(keys, callers),
        permissions=st.frozensets(st.sampled_from(PERMISSIONS)).map(sorted),
        modest=st.booleans(),
        hours=LIVES,
        with_key=WITH_KEY,
    )
    def create_api_key(
        self, caller: Caller, permissions: list[str], modest: bool, hours: int | None, with_key: bool
    ) -> MultipleResults[Key]:
        if modest and isinstance(caller, Key):
            permissions = sorted(caller.permissions - set(permissions))
        return self.new_key(caller, permissions, hours, with_key=with_key)

    @rule(
        targets=(keys, callers),
        caller=anybody,
        key=keys,
        overlap_seconds=st.sampled_from([0, 5 * 3600, 16 * 3600]),
        with_key=WITH_KEY,
    )
    def rotate_api_key(
        self, caller: Caller | None, key: Key, overlap_seconds: int, with_key: bool
    ) -> MultipleResults[Key]:
        body = {"overlap_seconds": overlap_seconds}
        request = self.request("rotate_api_key", key.id, body=body, with_key=with_key)
        made = self.change(caller or self.roots[key.workspace], request)
        return multiple() if made is None else multiple(self.model.keys[made])

    @rule(caller=anybody, key=keys, with_key=WITH_KEY)
    def revoke_api_key(self, caller: Caller | None, key: Key, with_key: bool) -> None:
        request = self.request("revoke_api_key", key.id, with_key=with_key)
        self.change(caller or self.roots[key.workspace], request)

    @rule(caller=callers, key=keys, order=st.sampled_from(["asc", "desc"]), limit=st.integers(1, 4))
    def look_at_keys(self, caller: Caller, key: Key, order: str, limit: int) -> None:
        self.read(caller, "get_api_key", key.id)
        found = self.walk(caller, "list_api_keys", order=order, limit=limit)
        self.check_keys(caller.workspace, found if found is None or order == "asc" else found[::-1])

    # --- sessions and their tokens ---

    @rule(target=sessions, caller=anybody, with_key=WITH_KEY)
    def create_session(self, caller: Caller | None, with_key: bool) -> MultipleResults[Session]:
        return self.new_session(caller or self.root(), [], with_key=with_key)

    @rule(
        target=sessions,
        caller=anybody,
        skill=skills,
        # Mostly what tells the default version from the latest.
        pinned=st.sampled_from([None, None, None, 1, 3]),
        default=st.sampled_from([1, 1, 2, None]),
        with_key=WITH_KEY,
    )
    def work_with_skill(
        self, caller: Caller | None, skill: Skill, pinned: int | None, default: int | None, with_key: bool
    ) -> MultipleResults[Session]:
        return self.work(caller, skill, pinned=pinned, default=default, with_key=with_key)

    @rule(
        caller=anybody,
        session=sessions,
        archived=st.sampled_from([None, False, True]),
        renamed=st.booleans(),
        condition=IF_MATCH,
        with_key=WITH_KEY,
    )
    def change_session(
        self,
        caller: Caller | None,
        session: Session,
        archived: bool | None,
        renamed: bool,
        condition: str | None,
        with_key: bool,
    ) -> None:
        body: Json = {} if archived is None else {"archived": archived}
        if renamed:
            body["title"] = self.name("title")
        if_match = _tag(condition, session.revision)
        request = self.request("change_session", session.id, body=body, if_match=if_match, with_key=with_key)
        self.change(caller or self.roots[session.workspace], request)

    @rule(caller=anybody, session=sessions, skill=skills, version=st.one_of(st.none(), st.integers(1, 3)))
    def use_skill(self, caller: Caller | None, session: Session, skill: Skill, version: int | None) -> None:
        body: Json = {"skills": [{"skill_id": skill.id, "version": version}]}
        request = self.request("change_session", session.id, body=body)
        self.change(caller or self.roots[session.workspace], request)

    @rule(target=sessions, caller=anybody, session=consumes(sessions), condition=IF_MATCH)
    def delete_session(
        self, caller: Caller | None, session: Session, condition: str | None
    ) -> MultipleResults[Session]:
        request = self.request("delete_session", session.id, if_match=_tag(condition, session.revision))
        self.change(caller or self.roots[session.workspace], request)
        # What was said in a deleted one is said again by `send_again`, and its tokens are still there to be tried.
        return multiple() if session.is_deleted else multiple(session)

    @rule(caller=callers, session=sessions)
    def look_at_session(self, caller: Caller, session: Session) -> None:
        self.read(caller, "get_session", session.id)
        self.check_session(caller, session)

    @rule(
        targets=(tokens, callers),
        caller=anybody,
        session=sessions,
        hours=LIVES,
        with_key=WITH_KEY,
        may_resolve=st.booleans(),
    )
    def create_session_token(
        self, caller: Caller | None, session: Session, hours: int | None, with_key: bool, may_resolve: bool
    ) -> MultipleResults[Token]:
        root = self.roots[session.workspace]
        return self.new_token(caller or root, session, hours, with_key=with_key, may_resolve=may_resolve)

    @rule(caller=anybody, token=tokens, with_key=WITH_KEY)
    def revoke_session_token(self, caller: Caller | None, token: Token, with_key: bool) -> None:
        request = self.request("revoke_session_token", token.session.id, token.id, with_key=with_key)
        self.change(caller or self.roots[token.workspace], request)

    # --- inputs and runs ---

    @rule(caller=anybody, session=sessions, with_key=WITH_KEY, delivery=DELIVERIES)
    def submit_input(self, caller: Caller | None, session: Session, with_key: bool, delivery: str | None) -> None:
        self.submit(caller or self.roots[session.workspace], session, with_key=with_key, delivery=delivery)

    @rule(session=sessions, deliveries=st.lists(DELIVERIES, min_size=1, max_size=3))
    def talk(self, session: Session, deliveries: list[str | None]) -> None:
        for delivery in deliveries:
            self.submit(self.roots[session.workspace], session, with_key=True, delivery=delivery)

    @rule(token=tokens, with_key=WITH_KEY, delivery=DELIVERIES)
    def submit_by_token(self, token: Token, with_key: bool, delivery: str | None) -> None:
        self.submit(token, token.session, with_key=with_key, delivery=delivery)

    @rule(caller=callers, session=sessions)
    def submit_nothing(self, caller: Caller, session: Session) -> None:
        self.change(caller, self.request("submit_input", session.id, body={"type": "input"}, with_key=True))

    @precondition(lambda self: self.running())
    @rule(which=ANY, with_call=st.booleans())
    def let_the_model_answer(self, which: int, with_call: bool) -> None:
        self.answer(self.running()[which % len(self.running())], with_call=with_call)

    @precondition(lambda self: self.running())
    @rule(which=ANY, count=st.sampled_from([1, 2]))
    def let_the_model_need_approvals(self, which: int, count: int) -> None:
        self.need_approvals(self.running()[which % len(self.running())], count)

    @precondition(lambda self: self.model.actions)
    @rule(
        caller=anybody,
        which=ANY,
        # Mostly valid ones.
        decision=st.sampled_from(["allow", "allow", "deny", "deny", "retry"]),
        with_key=WITH_KEY,
    )
    def resolve_action(self, caller: Caller | None, which: int, decision: str, with_key: bool) -> None:
        action = list(self.model.actions.values())[-1 - which % len(self.model.actions)]
        body = {"decision": decision}
        request = self.request("resolve_action", action.id, body=body, with_key=with_key)
        self.change(caller or self.roots[action.session.workspace], request)

    @precondition(lambda self: self.model.actions)
    @rule(caller=callers, which=ANY)
    def look_at_action(self, caller: Caller, which: int) -> None:
        self.read(caller, "get_action", list(self.model.actions)[-1 - which % len(self.model.actions)])

    @precondition(lambda self: self.running())
    @rule(which=ANY)
    def let_the_model_fail(self, which: int) -> None:
        run = self.running()[which % len(self.running())]
        self.reply(run, FAILURE)
        self.ended(run)
        listed = self.walk(self.roots[run.session.workspace], "list_session_runs", run.session.id)
        assert listed is not None
        added = [one["id"] for one in listed if one["id"] not in self.model.runs]
        assert len(added) <= 1
        self.model.fail(run, added[0] if added else None)
        self.settle()

    @precondition(lambda self: self.model.runs)
    @rule(caller=anybody, which=ANY, with_key=WITH_KEY)
    def cancel_run(self, caller: Caller | None, which: int, with_key: bool) -> None:
        run = list(self.model.runs.values())[-1 - which % len(self.model.runs)]
        self.change(caller or self.roots[run.session.workspace], self.request("cancel_run", run.id, with_key=with_key))

    @precondition(lambda self: self.model.runs)
    @rule(caller=callers, which=ANY)
    def look_at_run(self, caller: Caller, which: int) -> None:
        self.read(caller, "get_run", list(self.model.runs)[-1 - which % len(self.model.runs)])

    def running(self) -> list[Run]:
        return [run for workspace in self.roots for run in self.model.active(workspace) if run.state == "running"]

    # --- skills ---

    @rule(target=skills, caller=anybody, with_key=WITH_KEY)
    def create_skill(self, caller: Caller | None, with_key: bool) -> MultipleResults[Skill]:
        return self.new_skill(caller or self.root(), with_key=with_key)

    @rule(
        caller=anybody,
        skill=skills,
        archive=st.integers(0, ARCHIVES - 1),
        condition=IF_MATCH,
        with_key=WITH_KEY,
    )
    def push_skill_version(
        self, caller: Caller | None, skill: Skill, archive: int, condition: str | None, with_key: bool
    ) -> None:
        self.push(caller or self.roots[skill.workspace], skill, archive, condition, with_key=with_key)

    @rule(
        caller=anybody,
        skill=skills,
        change=st.one_of(
            st.builds(lambda number: {"default_version": number}, st.one_of(st.none(), st.integers(1, 4))),
            st.builds(lambda archived: {"archived": archived}, st.booleans()),
        ),
        condition=IF_MATCH,
        with_key=WITH_KEY,
    )
    def change_skill(
        self, caller: Caller | None, skill: Skill, change: Json, condition: str | None, with_key: bool
    ) -> None:
        if_match = _tag(condition, skill.revision)
        request = self.request("change_skill", skill.id, body=change, if_match=if_match, with_key=with_key)
        self.change(caller or self.roots[skill.workspace], request)

    @rule(caller=callers, skill=skills)
    def look_at_skill(self, caller: Caller, skill: Skill) -> None:
        self.read(caller, "get_skill", skill.id)
        self.check_versions(caller, skill)

    # --- again, later, and what is thrown away ---

    @precondition(lambda self: self.history)
    @rule(which=ANY, another=anybody, otherwise=st.booleans(), indent=st.sampled_from([None, 2]))
    def send_again(self, which: int, another: Caller | None, otherwise: bool, indent: int | None) -> None:
        caller, request = self.history[-1 - which % len(self.history)]
        self.change(another or caller, self._otherwise(request) if otherwise else request, indent=indent)

    @precondition(lambda self: any(request.key for _, request in self.history))
    @rule(which=ANY)
    def retry(self, which: int) -> None:
        sent = [(caller, request) for caller, request in self.history if request.key]
        self.change(*sent[-1 - which % len(sent)])

    def _otherwise(self, request: Request) -> Request:
        if request.archive is not None:
            return replace(request, archive=self.archives[self.archives.index(request.archive) - 1])
        if request.body is not None:
            return replace(request, body=request.body | OTHERWISE[request.operation])
        return request

    @rule(hours=HOURS, swept=st.booleans())
    def let_time_pass(self, hours: int, swept: bool) -> None:
        self.environment.age(list(self.roots), hours)
        self.model.let_pass(hours)
        self.actions_expire()
        self.settle()
        if swept:
            self.environment.delete_expired()
            self.model.sweep()
            self.check_archives()

    # --- what several rules do ---

    def new_key(
        self, caller: Caller, permissions: list[str], hours: int | None, *, with_key: bool
    ) -> MultipleResults[Key]:
        body = {"label": self.name("key"), "permissions": permissions, "expires_at": _moment(hours)}
        made = self.change(caller, self.request("create_api_key", body=body, with_key=with_key))
        return multiple() if made is None else multiple(self.model.keys[made])

    def new_session(self, caller: Caller, skills: list[Json], *, with_key: bool) -> MultipleResults[Session]:
        # The first workspace is new for each sequence: no other asks under this name.
        tag = f"{self.root().workspace}-{self.name('session')}"
        policy = {ASKING_TOOL: "ask"}
        body: Json = {"title": tag, "model": f"{MODEL_PREFIX}{tag}", "skills": skills, "tool_policy": policy}
        made = self.change(caller, self.request("create_session", body=body, with_key=with_key))
        return multiple() if made is None else multiple(self.model.sessions[made])

    def work(
        self, caller: Caller | None, skill: Skill, *, pinned: int | None, default: int | None, with_key: bool
    ) -> MultipleResults[Session]:
        """A session that uses the skill, with a run."""
        root = self.roots[skill.workspace]
        self.change(root, self.request("change_skill", skill.id, body={"default_version": default}))
        wanted: list[Json] = [{"skill_id": skill.id, "version": pinned}]
        made = self.new_session(caller or root, wanted, with_key=with_key)
        for session in made:
            self.submit(root, session, with_key=with_key)
        return made

    def answer(self, run: Run, *, with_call: bool) -> None:
        self.reply(run, CALL if with_call else ANSWER)
        self.model.answer(run, with_call=with_call)
        if run.state == "succeeded":
            self.ended(run)
        self.settle()

    def need_approvals(self, run: Run, count: int) -> None:
        self.reply(run, ASKING[count - 1])
        self.model.wait(run, self.waiting_for(run))
        assert len(run.waiting_for) == count
        self.settle()

    def new_token(
        self, caller: Caller, session: Session, hours: int | None, *, with_key: bool, may_resolve: bool = False
    ) -> MultipleResults[Token]:
        body: Json = {} if hours is None else {"expires_at": _moment(hours)}
        body |= {"may_resolve": True} if may_resolve else {}
        made = self.change(caller, self.request("create_session_token", session.id, body=body, with_key=with_key))
        return multiple() if made is None else multiple(self.model.tokens[made])

    def new_skill(self, caller: Caller, *, with_key: bool) -> MultipleResults[Skill]:
        made = self.change(caller, self.request("create_skill", body={"name": self.name("skill")}, with_key=with_key))
        return multiple() if made is None else multiple(self.model.skills[made])

    def push(self, caller: Caller, skill: Skill, archive: int, condition: str | None, *, with_key: bool) -> None:
        if_match, content = _tag(condition, skill.revision), self.archives[archive]
        request = self.request("push_skill_version", skill.id, archive=content, if_match=if_match, with_key=with_key)
        self.change(caller, request)

    def submit(self, caller: Caller, session: Session, *, with_key: bool, delivery: str | None = None) -> None:
        body = {"type": "input", "text": self.name("text")} | ({} if delivery is None else {"delivery": delivery})
        self.change(caller, self.request("submit_input", session.id, body=body, with_key=with_key))

    @invariant()
    def what_is_stored_is_what_the_model_knows(self) -> None:
        self.check_stored()

    def teardown(self) -> None:
        try:
            if sys.exc_info()[0] is None:
                self.check_all()
        finally:
            # A worker would hold on to their runs.
            for session in [one for one in self.model.sessions.values() if one.active is not None]:
                headers = {"Authorization": f"Bearer {self.roots[session.workspace].secret}"}
                self.environment.http.delete(f"/v1/sessions/{session.id}", headers=headers)


def _moment(hours: int | None) -> str | None:
    return None if hours is None else (datetime.now(UTC) + timedelta(hours=hours)).isoformat()


def _tag(condition: str | None, revision: int) -> str | None:
    return {"current": f'"{revision}"', "stale": f'"{revision - 1}"'}.get(condition or "", condition)

"""The steps of a sequence. Each names what it is about by position, so that it still means something after other steps
were left out; one that is not possible any more is passed over (`perform` returns False).

Limits are in tokens. Each answer of the stand-in provider uses 18.
"""

from typing import Any, ClassVar

from msgspec import UNSET, Struct, UnsetType

from quarterdeck.runs.action_records import expire_actions
from tests.model.features.provider import Reply
from tests.model.features.service import MODEL
from tests.model.features.world import ENDED, Agent, Attached, Json, Session, World

# Tools of the caller.
CLIENT_TOOLS = ("look_up", "book")
_TOOLS = [
    {"name": name, "description": "A tool.", "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}}
    for name in CLIENT_TOOLS
]
# A result of this many bytes is large for the smallest context.
SIZES = {"small": 10, "large": 2_400}
_LONG_ENDING = "x" * 170 + "." + "\N{GRINNING FACE}" * 20
FILES = {"text": "notes.txt", "binary": "data.bin", "hidden": "..notes.txt", "long": _LONG_ENDING}
_CONTENTS = {"binary": bytes([0, 255, 1])}


class Limits(Struct, frozen=True):
    """None: no limit."""

    run: int | None = None
    session: int | None = None

    def body(self) -> Json:
        return {"run": {"max_tokens": self.run}, "session": {"max_tokens": self.session}}


class Step(Struct, frozen=True):
    # Whether it may change what the session shows beside its log and its runs.
    changes_settings: ClassVar[bool] = True

    async def perform(self, world: World) -> bool:
        raise NotImplementedError


class OfSession(Step, frozen=True):
    session: int

    async def perform(self, world: World) -> bool:
        if self.session >= len(world.sessions) or world.sessions[self.session].is_deleted:
            return False
        found = world.focus = world.sessions[self.session]
        return await self.change(world, found)

    async def change(self, world: World, session: Session) -> bool:
        raise NotImplementedError


class OfAgent(Step, frozen=True):
    agent: int

    async def perform(self, world: World) -> bool:
        if self.agent >= len(world.agents) or world.agents[self.agent].is_archived:
            return False
        return await self.change(world, world.agents[self.agent])

    async def change(self, world: World, agent: Agent) -> bool:
        raise NotImplementedError


# --- sessions and inputs ---


class NewSession(Step, frozen=True):
    limits: Limits = Limits()
    policy: dict[str, str] = {}
    sandbox: Json | None = None
    # The session follows it. The other fields are the agent's then.
    agent: int | None = None

    async def perform(self, world: World) -> bool:
        body: Json = {"model": MODEL, "client_tools": _TOOLS}
        if self.agent is None:
            body |= {"limits": self.limits.body(), "tool_policy": self.policy, "sandbox": self.sandbox}
        elif self.agent < len(world.agents) and not world.agents[self.agent].is_archived:
            body["agent"] = {"agent_id": world.agents[self.agent].ref}
        else:
            return False
        await _add_session(world, "/v1/sessions", body)
        return True


async def _add_session(world: World, path: str, body: Json) -> None:
    session = Session(len(world.sessions) + 1)
    await world.send("POST", path, body, saves=session.ref[1:])
    world.sessions.append(session)
    world.focus = session


class Submit(OfSession, frozen=True):
    changes_settings = False

    delivery: str = "steer"
    # One of FILES, so many times, each time with another content.
    file: str | None = None
    copies: int = 1

    async def change(self, world: World, session: Session) -> bool:
        if session.shown["archived_at"] is not None:
            return False
        text = f"[input {world.count('input')}] Please."
        body: Json = {"type": "input", "text": text, "delivery": self.delivery}
        if self.file is not None:
            body["attachments"] = [await _upload(world, self.file) for _ in range(self.copies)]
        answer = await world.send("POST", f"/v1/sessions/{session.ref}/events", body, may_fail=self.file is not None)
        if self.file is not None:
            attached = Attached(session, session.shown["sandbox"], answer.status_code, self.file, text)
            world.attached.append(attached)
        session.is_fresh = False
        return True


async def _upload(world: World, file: str) -> str:
    number = world.count("file")
    content = _CONTENTS.get(file, b"notes ") + str(number).encode()
    await world.upload(FILES[file], content, f"FILE_{number}")
    return f"$FILE_{number}"


class Fork(OfSession, frozen=True):
    # Position in the log. Beyond its end: the whole log.
    position: int

    async def change(self, world: World, session: Session) -> bool:
        body: Json = {}
        if self.position < min(len(session.log), 200):
            variable = f"EVENT_{world.count('event')}"
            await world.look(variable, f"/v1/sessions/{session.ref}/events?limit=200", self.position)
            body["before_event_id"] = f"${variable}"
        await _add_session(world, f"/v1/sessions/{session.ref}/fork", body)
        assert world.focus is not None
        world.focus.is_fresh = True
        return True


class Delete(OfSession, frozen=True):
    async def change(self, world: World, session: Session) -> bool:
        await world.send("DELETE", f"/v1/sessions/{session.ref}")
        session.is_deleted = True
        return True


# --- the model ---


class Answer(OfSession, frozen=True):
    """With tools the model calls them, otherwise it writes a text. With a status the provider refuses."""

    changes_settings = False

    tools: tuple[str, ...] = ()
    status: int = 200

    async def change(self, world: World, session: Session) -> bool:
        question = world.question(session)
        if question is None:
            return False
        text = f"[answer {world.count('answer')}]"
        calls = [] if question.is_summary else [_call(world, name) for name in self.tools]
        world.answer(question, Reply(text, calls, self.status))
        return True


def _call(world: World, name: str) -> tuple[str, str, Json]:
    number = world.count("call")
    arguments: dict[str, Json] = {"add_note": {"text": f"note {number}"}, "write_file": _FILE}
    return f"call_{number}", name, arguments.get(name, {})


_FILE: Json = {"path": "report.txt", "content": "A report."}


# --- answers to actions ---


class Resolve(OfSession, frozen=True):
    """Answers the open actions of a kind: the one at this position, or all."""

    kind: str
    # A decision, or the size of a result.
    choice: str
    position: int | None = None
    # How much more than what was used a raise allows.
    more: int = 1

    async def change(self, world: World, session: Session) -> bool:
        found = [one for one in session.open_actions if one["kind"] == self.kind]
        chosen = found if self.position is None else found[self.position : self.position + 1]
        still_open = [one["action_id"] for one in session.open_actions]
        for action in chosen:
            variable = f"ACTION_{world.count('action')}"
            listed = f"/v1/actions?session_id={session.ref}&state=open&order=asc"
            await world.look(variable, listed, still_open.index(action["action_id"]))
            still_open.remove(action["action_id"])
            await world.send("POST", f"/v1/actions/${variable}/resolve", self._body(world, session, action))
            if self.choice == "raise":
                await self._raised(world, session)
        return bool(chosen)

    def _body(self, world: World, session: Session, action: Json) -> Json:
        if self.kind == "tool_result":
            text = f"[result {action['call_id']}] " + "r" * SIZES[self.choice]
            world.sent_results[action["call_id"]] = text[:20]
            return {"result": text}
        if self.choice == "raise":
            return {"decision": "raise", "max_tokens": session.used_tokens(action["reached"]["scope"]) + self.more}
        if self.choice == "remember":
            return {"decision": "allow", "remember": "session"}
        if self.choice == "change":
            return {"decision": "allow", "arguments": {"q": "changed"}}
        return {"decision": self.choice}

    async def _raised(self, world: World, session: Session) -> None:
        assert session.active is not None
        session.raised_runs.add(session.active["id"])
        before = session.shown["limits"]
        await world.read(session)
        world.raises.append((before, session.shown["limits"]))


class ExpireActions(OfSession, frozen=True):
    async def change(self, world: World, session: Session) -> bool:
        if not session.open_actions:
            return False
        world.comment("All open actions of the session expire (QUARTERDECK_ACTION_EXPIRY_…_SECONDS).")
        statement = "UPDATE actions SET expires_at = now() - interval '1 s' WHERE session_id = %s AND state = 'open'"
        await world.service.execute(statement, world.id_of(session.ref))
        await expire_actions(world.service.database)
        return True


# --- changes of sessions and agents ---


class ChangeSession(OfSession, frozen=True):
    policy: dict[str, str] | None = None
    # By scope. None: no limit.
    limits: dict[str, int | None] | None = None
    sandbox: Json | UnsetType | None = UNSET
    inherit: tuple[str, ...] = ()
    archived: bool | None = None

    async def change(self, world: World, session: Session) -> bool:
        body: Json = {}
        if self.policy is not None:
            body["tool_policy"] = self.policy
        if self.limits is not None:
            body["limits"] = {scope: {"max_tokens": value} for scope, value in self.limits.items()}
        if self.sandbox is not UNSET:
            body["sandbox"] = self.sandbox
        if self.archived is not None:
            body["archived"] = self.archived
        if self.inherit:
            if session.shown["agent"] is None:
                return False
            body["inherit"] = list(self.inherit)
        await world.send("PATCH", f"/v1/sessions/{session.ref}", body)
        return True


class SetAgent(OfSession, frozen=True):
    # None: no agent.
    agent: int | None

    async def change(self, world: World, session: Session) -> bool:
        reference: Any = None
        if self.agent is not None:
            if self.agent >= len(world.agents) or world.agents[self.agent].is_archived:
                return False
            reference = {"agent_id": world.agents[self.agent].ref}
        await world.send("PATCH", f"/v1/sessions/{session.ref}", {"agent": reference})
        return True


class Version(Struct, frozen=True):
    limits: Limits = Limits()
    policy: dict[str, str] = {}
    sandbox: Json | None = None

    def body(self) -> Json:
        return {
            "model": MODEL,
            "client_tools": _TOOLS,
            "limits": self.limits.body(),
            "tool_policy": self.policy,
            "sandbox": self.sandbox,
        }


class NewAgent(Step, frozen=True):
    version: Version = Version()

    async def perform(self, world: World) -> bool:
        agent = Agent(len(world.agents) + 1)
        body = {"name": f"agent {len(world.agents) + 1}", "version": self.version.body()}
        await world.send("POST", "/v1/agents", body, saves=agent.ref[1:])
        world.agents.append(agent)
        return True


class PushVersion(OfAgent, frozen=True):
    version: Version

    async def change(self, world: World, agent: Agent) -> bool:
        await world.send("POST", f"/v1/agents/{agent.ref}/versions", self.version.body())
        agent.versions += 1
        return True


class ChangeAgent(OfAgent, frozen=True):
    """A default version, or the archive."""

    default_version: int | None = None
    archived: bool = False

    async def change(self, world: World, agent: Agent) -> bool:
        if self.archived:
            await world.send("PATCH", f"/v1/agents/{agent.ref}", {"archived": True})
            agent.is_archived = True
            return True
        version = None if self.default_version is None else min(self.default_version, agent.versions)
        await world.send("PATCH", f"/v1/agents/{agent.ref}", {"default_version": version})
        return True


# --- runs ---


class Retry(OfSession, frozen=True):
    """The last run that ended without success."""

    changes_settings = False

    async def change(self, world: World, session: Session) -> bool:
        ended = [at for at, run in enumerate(session.runs) if run["state"] in ("failed", "cancelled")]
        if not ended or session.active or session.shown["archived_at"] is not None:
            return False
        variable = await _look_run(world, session, ended[-1])
        # Refused if none of its inputs is left.
        await world.send("POST", f"/v1/runs/${variable}/retry", may_fail=True)
        return True


class Cancel(OfSession, frozen=True):
    changes_settings = False

    async def change(self, world: World, session: Session) -> bool:
        if session.active is None:
            return False
        variable = await _look_run(world, session, session.runs.index(session.active))
        await world.send("POST", f"/v1/runs/${variable}/cancel")
        return True


async def _look_run(world: World, session: Session, position: int) -> str:
    variable = f"RUN_{world.count('run')}"
    await world.look(variable, f"/v1/sessions/{session.ref}/runs?order=asc&limit=200", position)
    return variable


class Drop(OfSession, frozen=True):
    """Withdraws or drops the newest input, if that is allowed."""

    changes_settings = False

    async def change(self, world: World, session: Session) -> bool:
        accepted = session.events("input.accepted")
        if not accepted:
            return False
        input_id = accepted[-1]["data"]["input_id"]
        variable = f"INPUT_{world.count('dropped')}"
        world.set_input(variable, session.ref, input_id)
        await world.send("DELETE", f"/v1/sessions/{session.ref}/inputs/${variable}", may_fail=True)
        return True


# --- faults and time ---


class Kill(OfSession, frozen=True):
    """While it waits for the model."""

    changes_settings = False

    async def change(self, world: World, session: Session) -> bool:
        if session.active is None or world.question(session) is None:
            return False
        world.comment("The worker is killed here.")
        await world.service.kill(session.active["id"])
        return True


class GrantWrites(Step, frozen=True):
    count: int

    async def perform(self, world: World) -> bool:
        world.comment(f"The worker of the next attempt is killed after {self.count} writes.")
        world.service.grant_writes(self.count)
        return True


class ExpireLog(OfSession, frozen=True):
    """What ended before now is older than the retention."""

    async def change(self, world: World, session: Session) -> bool:
        if not any(run["state"] in ENDED for run in session.runs):
            return False
        world.comment("The retention deletes the events of all ended runs of the session (event_days, qd sweep).")
        await world.service.expire_log(world.id_of(session.ref))
        session.has_expired = True
        await world.read_log_again(session)
        return True

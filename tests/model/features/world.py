"""What a sequence knows: the sessions and agents that it made, as the API shows them, and the commands that it sent.

Every command names ids by shell variables (`$SESSION_1`). So the list of commands is the script that repeats it.
"""

import json
import re
from typing import Any

import httpx
from msgspec import Struct

from tests.model.features.provider import Question, Reply
from tests.model.features.service import Service

Json = dict[str, Any]
ENDED = ("succeeded", "failed", "cancelled")
_VARIABLE = re.compile(r"\$([A-Z]+_[0-9]+)")
_PAGE = 200


class Broken(Exception):
    """A promise is broken."""

    def __init__(self, promise: str, reason: str) -> None:
        super().__init__(f"{promise}: {reason}")
        self.promise = promise
        self.reason = reason


class Session:
    def __init__(self, number: int) -> None:
        self.number = number
        self.ref = f"$SESSION_{number}"
        self.shown: Json = {}
        self.runs: list[Json] = []
        self.log: list[Json] = []
        # Commands of the last step that matters for what is tried next: a fork or a retry wants an input.
        self.is_fresh = False
        self.is_deleted = False
        # A part of its log was deleted by retention.
        self.has_expired = False
        # Runs of which a limit was raised by an answer.
        self.raised_runs: set[str] = set()

    def events(self, *types: str) -> list[Json]:
        return [one for one in self.log if one["type"] in types]

    @property
    def active(self) -> Json | None:
        return next((run for run in self.runs if run["state"] in ("queued", "running", "waiting")), None)

    @property
    def open_actions(self) -> list[Json]:
        """Oldest first."""
        waiting_for = [] if self.active is None else self.active["waiting_for"]
        return [one["data"] for one in self.events("action.required") if one["data"]["action_id"] in waiting_for]

    @property
    def follows_limits(self) -> bool:
        """Of an agent."""
        return self.shown["agent"] is not None and "limits" not in self.shown["overrides"]

    def used_tokens(self, scope: str) -> int:
        runs = [self.active] if scope == "run" and self.active else self.runs
        return sum(run["usage"]["input_tokens"] + run["usage"]["output_tokens"] for run in runs)

    def limit(self, scope: str) -> float:
        """Of tokens, as it is shown."""
        shown = self.shown["limits"][scope]["max_tokens"]
        return float("inf") if shown is None else shown


class Attached(Struct, frozen=True):
    """An input with a file, and how it was answered."""

    session: Session
    # As it was shown.
    sandbox: Json | None
    status: int
    file: str
    text: str


class Agent:
    def __init__(self, number: int) -> None:
        self.ref = f"$AGENT_{number}"
        self.versions = 1
        self.is_archived = False


class World:
    def __init__(self, service: Service, key: str) -> None:
        self.service = service
        self._headers = {"Authorization": f"Bearer {key}"}
        self.sessions: list[Session] = []
        self.agents: list[Agent] = []
        self.files: dict[str, str] = {}
        # Lines of the script.
        self.script: list[str] = []
        self._ids: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        # By call id: what the caller sent as its result.
        self.sent_results: dict[str, str] = {}
        # Their results were part of a request that the provider refused: later runs leave them out.
        self.refused_calls: set[str] = set()
        self.attached: list[Attached] = []
        # Limits as they were shown before and after an answer raised one.
        self.raises: list[tuple[Json, Json]] = []
        # The session of the last step.
        self.focus: Session | None = None

    def count(self, name: str) -> int:
        self._counts[name] = self._counts.get(name, 0) + 1
        return self._counts[name]

    # --- commands ---

    async def send(
        self, method: str, path: str, body: Json | None = None, *, saves: str | None = None, may_fail: bool = False
    ) -> httpx.Response:
        """`saves`: the variable for the id in the answer. `may_fail`: a refusal is no fault."""
        self.script.append(_command(method, path, body, saves))
        content = None if body is None else self._filled(_body(body)).encode()
        return await self._checked(method, path, content, "application/json", saves, may_fail=may_fail)

    async def upload(self, name: str, content: bytes, saves: str) -> None:
        """Each name once."""
        path = f"/v1/files?name={_quoted(name)}"
        self.script.append(f"upload '{path}' {saves} '{_octal(content)}'")
        await self._checked("POST", path, content, "application/octet-stream", saves)

    async def _checked(
        self, method: str, path: str, content: bytes | None, kind: str, saves: str | None, *, may_fail: bool = False
    ) -> httpx.Response:
        headers = self._headers | ({} if content is None else {"Content-Type": kind})
        answer = await self.service.http.request(method, self._filled(path), content=content, headers=headers)
        if answer.status_code >= 500:
            raise Broken("every_answer_is_one_of_the_api", f"{method} {path}: {answer.status_code} {answer.text}")
        if not answer.is_success and not may_fail:
            raise Broken("a_valid_request_is_accepted", f"{method} {path} {content!r}: {answer.text}")
        if saves is not None and answer.is_success:
            self._ids[saves] = str(answer.json()["id"])
        return answer

    async def look(self, variable: str, path: str, position: int) -> str:
        """Reads the id of an item of a list into a variable."""
        self.script.append(f'look {variable} "{path}" {position}')
        self._ids[variable] = str((await self._get(path))["items"][position]["id"])
        return self._ids[variable]

    def set_input(self, variable: str, session: str, input_id: str) -> None:
        """The newest input of a session."""
        self.script.append(f"look_input {variable} {session}")
        self._ids[variable] = input_id

    def answer(self, question: Question, reply: Reply) -> None:
        at = self.service.provider.waiting.index(question)
        self.script.append(f"answer {at} <<'JSON'\n{json.dumps(_plain(reply))}\nJSON")
        if reply.status != 200:
            self.refused_calls |= {one["tool_call_id"] for one in question.messages if one["role"] == "tool"}
        question.reply.set_result(reply)
        # Not asked again, also if its worker has not noticed yet.
        self.service.provider.waiting.remove(question)

    def comment(self, text: str) -> None:
        self.script.append(f"# {text}")

    # --- what is shown ---

    async def read(self, session: Session, *, settings: bool = True) -> None:
        if session.is_deleted:
            return
        if settings or not session.shown:
            session.shown = await self._get(f"/v1/sessions/{session.ref}")
        known = len(session.log)
        after = session.log[-1]["id"] if session.log else 0
        while after is not None:
            page = await self._get(f"/v1/sessions/{session.ref}/events?limit={_PAGE}&after={after}")
            session.log += page["items"]
            after = page["next_cursor"]
        if len(session.log) > known:
            session.runs = (await self._get(f"/v1/sessions/{session.ref}/runs?order=asc&limit={_PAGE}"))["items"]

    async def read_log_again(self, session: Session) -> None:
        session.log = []
        await self.read(session)

    async def _get(self, path: str) -> Json:
        answer = await self.service.http.get(self._filled(path), headers=self._headers)
        if answer.status_code != 200:
            raise Broken("what_exists_can_be_read", f"{path}: {answer.status_code} {answer.text}")
        shown: Json = answer.json()
        return shown

    def question(self, session: Session) -> Question | None:
        run = session.active
        return None if run is None else self.service.provider.question_of(run["id"])

    def id_of(self, ref: str) -> str:
        return self._filled(ref)

    def _filled(self, text: str) -> str:
        return _VARIABLE.sub(lambda found: self._ids[found[1]], text)


def _plain(reply: Reply) -> Json:
    return {"text": reply.text, "calls": reply.calls, "status": reply.status}


def _command(method: str, path: str, body: Json | None, saves: str | None) -> str:
    end = f" {saves}" if saves else ""
    if body is None:
        return f'send {method} "{path}"{end} </dev/null'
    # The shell fills in the variables. It reads a backslash as the start of an escape.
    text = _body(body).replace("\\", "\\\\").replace("`", "\\`")
    return f'send {method} "{path}"{end} <<JSON\n{text}\nJSON'


def _body(body: Json) -> str:
    """Ids of events are numbers."""
    return re.sub(r'"(\$EVENT_[0-9]+)"', r"\1", json.dumps(body, ensure_ascii=False))


def _quoted(name: str) -> str:
    return str(httpx.QueryParams({"name": name})).removeprefix("name=")


def _octal(content: bytes) -> str:
    return "".join(f"\\{byte:03o}" for byte in content)

"""`qd watch`: prints the events of a session as they arrive, one per line."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import typer

from quarterdeck.cli import find
from quarterdeck.cli.action_text import answered, call_text, caller_text, required, resolve_command
from quarterdeck.cli.chat_session import ChatSession, open_client, run_until_first
from quarterdeck.cli.chat_view import coloured, plain_text, sanitized, without_colours
from quarterdeck.cli.connection import ConnectionInfo, client_for, connect, explained
from quarterdeck.cli.conversation import (
    NOTICES,
    Block,
    attached,
    cut_off_text,
    is_diff,
    reasoning_line,
    retry_text,
    sources_text,
)
from quarterdeck.cli.options import Profile, SessionId, flag, option, whole_number
from quarterdeck.cli.output import coloured_diff, count_text, has_colours, json_text, print_json
from quarterdeck.client import AsyncClient, Event
from quarterdeck.client.models import Delta, EventType, ModelRetry
from quarterdeck.client.tool_calls import RUN_ENDS

_MAX_REST_CHARACTERS = 64 * 1024


def watch(
    session: SessionId,
    after: Annotated[int, option("N", "Start after the event with this ID.", parser=whole_number(0, 2**53))] = 0,
    as_json: Annotated[bool, flag("--json", "Print each event as one line of JSON.")] = False,
    until_idle: Annotated[bool, flag("--until-idle", "Exit when no run is active.")] = False,
    profile: Profile = None,
) -> None:
    """Follow the log of a session."""
    info = connect(profile)
    with explained(info):
        with client_for(info) as client:
            session_id = find.session_id(client, session)
        asyncio.run(_watch(info, session_id, after, as_json=as_json, until_idle=until_idle))


async def _watch(info: ConnectionInfo, session_id: UUID, after: int, *, as_json: bool, until_idle: bool) -> None:
    async with open_client(info) as client:
        session = WatchedSession(client, session_id, after, as_json=as_json)
        while True:
            session.run_ended.clear()
            # Checked before the log is read, so that the log has all events of the last run.
            is_active = not until_idle or await session.has_active_run()
            await session.catch_up(0)
            if not is_active:
                return
            await run_until_first(session.follow(), *([session.run_ended.wait()] if until_idle else []))


class WatchedSession(ChatSession):
    """Prints each event when it arrives."""

    def __init__(self, client: AsyncClient, session_id: UUID, after: int, *, as_json: bool) -> None:
        super().__init__(client, session_id, _show_warnings)
        self.conversation.position = after
        self.run_ended = asyncio.Event()
        self._as_json = as_json
        # The last, unfinished line of each running command. The stored result has all lines again.
        self._unfinished: dict[str, str] = {}
        # How many characters of its output were read. A new stream sends them again.
        self._read: dict[str, int] = {}

    def handle(self, item: Event | Delta) -> list[Block]:
        super().handle(item)
        if isinstance(item, Delta):
            self._print_delta(item)
            return []
        if item.type == EventType.TOOL_RESULT:
            self._unfinished.pop(str(item.data.get("call_id")), None)
        if item.type in (EventType.RUN_STARTED, *RUN_ENDS):
            # Another attempt carries its calls out anew.
            self._unfinished.clear()
            self._read.clear()
        if item.type in RUN_ENDS:
            self.run_ended.set()
        if self._as_json:
            print_json(item)
        else:
            typer.echo(event_text(item))
        return []

    def retried(self, retry: ModelRetry) -> None:
        if not self._as_json:
            typer.echo(_live_line("model.retry", sanitized(retry_text(retry))))

    def _print_delta(self, delta: Delta) -> None:
        """Lines that running commands print, each when it is complete."""
        if delta.call_id is None or self._as_json:
            return
        end = self._read.get(delta.call_id, 0)
        text = delta.text[max(0, end - delta.offset) :]
        self._read[delta.call_id] = max(end, delta.offset + len(delta.text))
        *lines, rest = (self._unfinished.get(delta.call_id, "") + text).split("\n")
        # A program that prints no line break would fill the memory.
        self._unfinished[delta.call_id] = rest[-_MAX_REST_CHARACTERS:]
        for line in lines:
            typer.echo(_live_line("tool.delta", _program_text(line)))


def _show_warnings(blocks: Sequence[Block]) -> None:
    for block in blocks:
        sys.stderr.write(plain_text(block) + "\n")
    sys.stderr.flush()


def _live_line(kind: str, text: str) -> str:
    """As the lines of events, without a number: it is not part of the log."""
    time = datetime.now().astimezone().strftime("%H:%M:%S")
    return f"{'':>6}  {time}  {kind:<15}  {text}".rstrip()


def _program_text(text: str) -> str:
    return coloured(text) if has_colours() else without_colours(text)


def event_text(event: Event) -> str:
    time = event.created_at.astimezone().strftime("%H:%M:%S")
    start = f"{event.id:>6}  {time}  {sanitized(event.type):<15}  "
    content = _safe_content(event.type, event.data)
    return (start + content).rstrip().replace("\n", "\n" + " " * len(start))


def _safe_content(event_type: str, data: dict[str, Any]) -> str:
    """The output of commands keeps its colours, and diffs have some."""
    tool, text = str(data.get("name", "")), _text(data)
    if event_type == EventType.TOOL_RESULT and tool == "bash":
        return f"bash → {_program_text(text)}"
    if event_type == EventType.TOOL_RESULT and has_colours() and is_diff(tool, text):
        return f"{tool} → {coloured_diff(without_colours(text))}"
    return sanitized(_CONTENT.get(event_type, _all_data)(data))


def _all_data(data: dict[str, Any]) -> str:
    """For types that this version does not know."""
    return json_text(data) if data else ""


def _text(data: dict[str, Any]) -> str:
    return str(data.get("text", ""))


def _reason(data: dict[str, Any]) -> str:
    return str(data.get("reason", ""))


def _input(data: dict[str, Any]) -> str:
    sent = f"{_text(data)}{_in_brackets(caller_text(data.get('actor')).strip())}"
    return "\n".join([sent, *(f"Attached: {file}" for file in attached(data))])


def _run_started(data: dict[str, Any]) -> str:
    skills = [f"{skill.get('name')}@{skill.get('version')}" for skill in data.get("skills") or []]
    return ", ".join([f"attempt {data.get('attempt')}", *([data["model"]] if data.get("model") else []), *skills])


def _ended(data: dict[str, Any]) -> str:
    """The reason of a failed run, and what follows."""
    discarded = len(data.get("discarded_input_ids") or [])
    follows = [
        f"next run {data['next_run_id']}" if data.get("next_run_id") else "",
        f"{count_text(discarded, 'input')} discarded" if discarded else "",
    ]
    return (_reason(data) + _in_brackets(", ".join(filter(None, follows)))).strip()


def _resolved(data: dict[str, Any]) -> str:
    return f"{data['tool']}: {answered(data)}" if data.get("tool") else answered(data)


def _in_brackets(text: str) -> str:
    return f" ({text})" if text else ""


_CONTENT: dict[str, Callable[[dict[str, Any]], str]] = {
    EventType.SESSION_FORKED: lambda data: f"from {data.get('session_id', '')}",
    EventType.INPUT_ACCEPTED: _input,
    EventType.INPUT_CONSUMED: lambda data: f"step {data.get('step')}",
    EventType.INPUT_DISCARDED: _reason,
    EventType.RUN_STARTED: _run_started,
    EventType.RUN_REQUEUED: _reason,
    EventType.MESSAGE: lambda data: "\n".join(
        filter(None, (reasoning_line(data), _text(data), sources_text(data), cut_off_text(data)))
    ),
    EventType.TOOL_CALL: lambda data: call_text(str(data.get("name", "")), data.get("arguments")),
    EventType.TOOL_STARTED: lambda data: f"{data.get('name', '')}, attempt {data.get('attempt')}",
    EventType.TOOL_RESULT: lambda data: f"{data.get('name', '')} → {_text(data)}",
    EventType.ACTION_REQUIRED: lambda data: f"{required(data)}\n{resolve_command(data)}",
    EventType.ACTION_RESOLVED: _resolved,
    EventType.NOTE: _text,
    **NOTICES,
    EventType.RUN_SUCCEEDED: _ended,
    EventType.RUN_FAILED: _ended,
    EventType.RUN_CANCELLED: _ended,
}

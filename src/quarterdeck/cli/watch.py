"""`qd watch`: prints the events of a session as they arrive, one per line."""

import asyncio
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import msgspec
import typer

from quarterdeck.cli.chat_session import ChatSession, open_client, run_until_first
from quarterdeck.cli.chat_view import plain_text, sanitized
from quarterdeck.cli.connection import ConnectionInfo
from quarterdeck.cli.conversation import Block, call_text
from quarterdeck.cli.output import print_json_text
from quarterdeck.client import AsyncClient, Event
from quarterdeck.client.models import EventType

_RUN_ENDS = (EventType.RUN_SUCCEEDED, EventType.RUN_FAILED, EventType.RUN_CANCELLED)
# Valid in JSON, but terminals interpret some of them.
_CONTROL = re.compile("[\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


async def watch(info: ConnectionInfo, session_id: UUID, after: int, *, as_json: bool, until_idle: bool) -> None:
    async with open_client(info) as client:
        await _watch(client, session_id, after, as_json=as_json, until_idle=until_idle)


async def _watch(client: AsyncClient, session_id: UUID, after: int, *, as_json: bool, until_idle: bool) -> None:
    run_ended = asyncio.Event()

    def on_event(event: Event) -> None:
        if as_json:
            print_json_text(event_json(event))
        else:
            typer.echo(event_text(event))
        if until_idle and event.type in _RUN_ENDS:
            run_ended.set()

    session = ChatSession(client, session_id, _show_warnings, on_event)
    session.conversation.position = after
    while True:
        run_ended.clear()
        # Checked before the log is read, so that the log has all events of the last run.
        is_active = not until_idle or await session.has_active_run()
        await session.catch_up(0)
        if not is_active:
            return
        await run_until_first(session.follow(), run_ended.wait())


def _show_warnings(blocks: Sequence[Block]) -> None:
    for block in blocks:
        sys.stderr.write(plain_text(block) + "\n")
    sys.stderr.flush()


def event_json(event: Event) -> str:
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", msgspec.json.encode(event).decode())


def event_text(event: Event) -> str:
    time = event.created_at.astimezone().strftime("%H:%M:%S")
    start = f"{event.id:>6}  {time}  {sanitized(event.type):<15}  "
    content = _CONTENT.get(event.type, _all_data)(event.data)
    return (start + sanitized(content)).rstrip().replace("\n", "\n" + " " * len(start))


def _all_data(data: dict[str, Any]) -> str:
    return msgspec.json.encode(data).decode() if data else ""


def _text(data: dict[str, Any]) -> str:
    return str(data.get("text", ""))


_CONTENT: dict[str, Callable[[dict[str, Any]], str]] = {
    EventType.INPUT_ACCEPTED: _text,
    EventType.INPUT_CONSUMED: lambda data: f"step {data.get('step')}",
    EventType.INPUT_DISCARDED: lambda data: str(data.get("reason", "")),
    EventType.RUN_STARTED: lambda data: f"attempt {data.get('attempt')}",
    EventType.RUN_REQUEUED: lambda data: str(data.get("reason", "")),
    EventType.MESSAGE: _text,
    EventType.TOOL_CALL: call_text,
    EventType.TOOL_RESULT: lambda data: f"{data.get('name', '')} → {_text(data)}",
    EventType.RUN_FAILED: lambda data: str(data.get("reason", "")),
}

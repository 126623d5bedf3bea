"""`qd watch`: a session's log as it grows, an entry a line."""

import asyncio
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import msgspec
import typer

from quarterdeck.cli.chat_session import Talk, first_to_end, open_client
from quarterdeck.cli.chat_view import clean, plain
from quarterdeck.cli.connection import ConnectionInfo
from quarterdeck.cli.conversation import Block, call_text
from quarterdeck.cli.output import print_json_text
from quarterdeck.client import AsyncClient, Event
from quarterdeck.conversations.events.model import EventType

_ENDS = (EventType.RUN_SUCCEEDED, EventType.RUN_FAILED, EventType.RUN_CANCELLED)
# JSON may hold these as they are, but a terminal obeys some of them.
_CONTROL = re.compile("[\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


async def watch(info: ConnectionInfo, session_id: UUID, after: int, *, as_json: bool, until_idle: bool) -> None:
    async with open_client(info) as client:
        await _watch(client, session_id, after, as_json=as_json, until_idle=until_idle)


async def _watch(client: AsyncClient, session_id: UUID, after: int, *, as_json: bool, until_idle: bool) -> None:
    rested = asyncio.Event()

    def on_event(event: Event) -> None:
        if as_json:
            print_json_text(as_line(event))
        else:
            typer.echo(as_text(event))
        if until_idle and event.type in _ENDS:
            rested.set()

    talk = Talk(client, session_id, _warn, on_event)
    talk.conversation.position = after
    while True:
        rested.clear()
        # Asked before the rest is read: what the last run wrote is then in it.
        active = not until_idle or await talk.is_active()
        await talk.catch_up(0)
        if not active:
            return
        await first_to_end(talk.follow(), rested.wait())


def _warn(blocks: Sequence[Block]) -> None:
    for block in blocks:
        sys.stderr.write(plain(block) + "\n")
    sys.stderr.flush()


def as_line(event: Event) -> str:
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", msgspec.json.encode(event).decode())


def as_text(event: Event) -> str:
    when = event.created_at.astimezone().strftime("%H:%M:%S")
    begin = f"{event.id:>6}  {when}  {clean(event.type):<15}  "
    content = _CONTENT.get(event.type, _whole)(event.data)
    return (begin + clean(content)).rstrip().replace("\n", "\n" + " " * len(begin))


def _whole(data: dict[str, Any]) -> str:
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

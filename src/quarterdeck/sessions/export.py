"""Exports the log of a session, page by page, so that memory stays bounded."""

import re
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from html import escape
from typing import Any
from urllib.parse import quote
from uuid import UUID

import msgspec

from quarterdeck.auth.access import Access
from quarterdeck.core.call import Call
from quarterdeck.core.pages import LogPageRequest
from quarterdeck.events.model import EventBody, EventType
from quarterdeck.events.service import list_session_events
from quarterdeck.sessions.model import SessionBody

# A conversation as Markdown, for people who read it elsewhere. Pure functions, no I/O.
#
# Texts are written as they are, except for control characters: models answer in Markdown. Everything else is in code
# blocks and cannot break out.

_BACKTICKS = re.compile("`+")
_MIN_FENCE = 3
# All that may be in a URL. Others would end the link.
_URL_CHARACTERS = "!#$%&'()*+,/:;=?@[]~"
_FENCES = re.compile(f"`{{{_MIN_FENCE},}}")
_LINE_BREAK = re.compile("\r\n?|[\u2028\u2029]")
# A terminal would interpret them. C0 except tab and line feed, C1, and bidirectional formatting characters.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")

UNREAD = "\n> No run has read this message yet.\n"


def head(session: SessionBody) -> str:
    title = " ".join((session.title or "Session").split())
    return _printable(f"# {title}\n\nSession `{session.id}`, created {_time(session.created_at)}\n")


def event_markdown(event: EventBody) -> str:
    """Empty for events that are no part of the conversation."""
    return _printable(_as_markdown(event))


def _as_markdown(event: EventBody) -> str:
    data, time = event.data, _time(event.created_at)
    match event.type:
        case EventType.INPUT_ACCEPTED:
            attached = "".join(map(_attachment, data.get("attachments", [])))
            again = ", sent again by a retry" if "copy_of" in data else ""
            return f"\n## User\n\n*{time}{again}*\n\n{data['text']}\n{attached}"
        case EventType.MESSAGE:
            text = f"\n{data['text']}\n" if data["text"] else ""
            cut_off = "\n> The answer was cut off.\n" if data.get("cut_off") else ""
            reasoning = _folded("Reasoning", data["reasoning"]) if data.get("reasoning") else ""
            sources = "".join(map(_source, data.get("sources", [])))
            listed = f"\nSources:\n\n{sources}" if sources else ""
            return f"\n## Assistant\n\n*{time}*\n{reasoning}{text}{cut_off}{listed}"
        case EventType.TOOL_CALL:
            arguments = msgspec.json.format(msgspec.json.encode(data["arguments"]), indent=2).decode()
            return _folded(f"Tool call: {data['name']}", arguments, "json")
        case EventType.TOOL_RESULT:
            return _folded(f"Tool result: {data['name']}", data["text"])
        case EventType.INPUT_DISCARDED:
            return f"\n> {time}: A message was discarded. {_one_line(data['reason'])}\n"
        case EventType.RUN_FAILED:
            return f"\n> {time}: The run failed. {_one_line(data['reason'])}\n"
        case EventType.RUN_CANCELLED:
            return f"\n> {time}: The run was cancelled.\n"
        case EventType.SESSION_FORKED:
            return f"\n> {time}: Forked from session `{data['session_id']}`.\n"
    return ""


def _source(source: dict[str, Any]) -> str:
    title = re.sub(r"([\\\[\]])", r"\\\1", _one_line(source["title"]))
    return f"- [{title}](<{quote(source['url'], safe=_URL_CHARACTERS)}>)\n" if source.get("url") else f"- {title}\n"


def _attachment(attachment: dict[str, Any]) -> str:
    name = _code(_one_line(attachment["name"]))
    return f"\n> Attachment: {name} ({_one_line(attachment['media_type'])}, {attachment['bytes']} bytes)\n"


def _code(text: str) -> str:
    longest = max(map(len, _BACKTICKS.findall(text)), default=0)
    # Blanks: the text may start or end with a backtick.
    return f"{'`' * (longest + 1)} {text} {'`' * (longest + 1)}" if longest else f"`{text}`"


def _folded(summary: str, text: str, language: str = "") -> str:
    fence = "`" * (max(map(len, _FENCES.findall(text)), default=_MIN_FENCE - 1) + 1)
    summary = escape(_one_line(summary))
    return f"\n<details><summary>{summary}</summary>\n\n{fence}{language}\n{text}\n{fence}\n\n</details>\n"


def _printable(text: str) -> str:
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", _LINE_BREAK.sub("\n", text))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _time(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


# An export keeps one page in memory until its client has received it.
_PAGE_EVENTS = 100
_PAGE_BYTES = 256 * 1024
_INPUT_ENDS = (EventType.INPUT_CONSUMED, EventType.INPUT_DISCARDED)


async def json_lines(access: Access, call: Call[None], session_id: UUID) -> AsyncGenerator[bytes, None]:
    """The log as it is."""
    encode = msgspec.json.Encoder().encode_lines
    async for events in _pages(access, call, session_id):
        yield encode(events)


async def as_markdown(access: Access, call: Call[None], session: SessionBody) -> AsyncGenerator[bytes, None]:
    piece = bytearray(head(session).encode())
    async for text in _conversation(access, call, session.id):
        piece += text.encode()
        if len(piece) >= _PAGE_BYTES:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece)


async def _conversation(access: Access, call: Call[None], session_id: UUID) -> AsyncGenerator[str, None]:
    """Each input stands where a run has read it, which can be long after it was accepted. Only ids are kept until
    then: the texts of waiting inputs can be many megabytes."""
    waiting: dict[str, int] = {}
    async for events in _pages(access, call, session_id):
        accepted = {event.id: event for event in events if event.type == EventType.INPUT_ACCEPTED}
        for event in events:
            if event.id in accepted:
                waiting[event.data["input_id"]] = event.id
                continue
            if event.type in _INPUT_ENDS and (event_id := waiting.pop(event.data["input_id"], None)) is not None:
                found = accepted.get(event_id) or await _event(access, call, session_id, event_id)
                yield "" if found is None else event_markdown(found)
            yield event_markdown(event)
    unread = set(waiting.values())
    async for events in _pages(access, call, session_id, min(unread) - 1 if unread else None):
        for event in events:
            if event.id in unread:
                yield event_markdown(event) + UNREAD


async def _pages(
    access: Access, call: Call[None], session_id: UUID, after: int | None = 0
) -> AsyncGenerator[list[EventBody], None]:
    """Each page checks the caller again: an export ends when its credential is revoked."""
    while after is not None:
        page = await list_session_events(
            access, call, session_id, LogPageRequest(_PAGE_EVENTS, after), page_bytes=_PAGE_BYTES
        )
        yield page.items
        after = page.next_cursor


async def _event(access: Access, call: Call[None], session_id: UUID, event_id: int) -> EventBody | None:
    """None if it was deleted meanwhile."""
    page = await list_session_events(access, call, session_id, LogPageRequest(1, event_id - 1), page_bytes=_PAGE_BYTES)
    return next((event for event in page.items if event.id == event_id), None)

"""A conversation as Markdown, for people who read it elsewhere. Pure functions, no I/O.

Texts are written as they are: models answer in Markdown. Everything else is in code blocks and cannot break out.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from html import escape
from typing import Any

import msgspec

from quarterdeck.conversations.events.model import EventBody, EventType
from quarterdeck.conversations.sessions.model import SessionBody

_BACKTICKS = re.compile("`+")
_MIN_FENCE = 3
_FENCES = re.compile(f"`{{{_MIN_FENCE},}}")


def head(session: SessionBody) -> str:
    title = " ".join((session.title or "Session").split())
    return f"# {title}\n\nSession `{session.id}`, created {_time(session.created_at)}\n"


def body(events: Iterable[EventBody]) -> str:
    return "".join(map(_event, events))


def _event(event: EventBody) -> str:
    data, time = event.data, _time(event.created_at)
    match event.type:
        case EventType.INPUT_ACCEPTED:
            attached = "".join(map(_attachment, data.get("attachments", [])))
            return f"\n## User\n\n*{time}*\n\n{data['text']}\n{attached}"
        case EventType.MESSAGE:
            text = f"\n{data['text']}\n" if data["text"] else ""
            return f"\n## Assistant\n\n*{time}*\n{text}"
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


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _time(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"

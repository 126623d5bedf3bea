"""A conversation as Markdown, for people who read it elsewhere. Pure functions, no I/O.

Texts are written as they are, except for control characters: models answer in Markdown. Everything else is in code
blocks and cannot break out.
"""

import re
from datetime import UTC, datetime
from html import escape
from typing import Any

import msgspec

from quarterdeck.events.model import EventBody, EventType
from quarterdeck.sessions.model import SessionBody

_BACKTICKS = re.compile("`+")
_MIN_FENCE = 3
_FENCES = re.compile(f"`{{{_MIN_FENCE},}}")
_LINE_BREAK = re.compile("\r\n?|[\u2028\u2029]")
# A terminal would interpret them. C0 except tab and line feed, C1, and bidirectional formatting characters.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")

UNREAD = "\n> No run has read this message yet.\n"


def head(session: SessionBody) -> str:
    title = " ".join((session.title or "Session").split())
    return _printable(f"# {title}\n\nSession `{session.id}`, created {_time(session.created_at)}\n")


def event(event: EventBody) -> str:
    """Empty for events that are no part of the conversation."""
    return _printable(_event(event))


def _event(event: EventBody) -> str:
    data, time = event.data, _time(event.created_at)
    match event.type:
        case EventType.INPUT_ACCEPTED:
            attached = "".join(map(_attachment, data.get("attachments", [])))
            again = ", sent again by a retry" if "copy_of" in data else ""
            return f"\n## User\n\n*{time}{again}*\n\n{data['text']}\n{attached}"
        case EventType.MESSAGE:
            text = f"\n{data['text']}\n" if data["text"] else ""
            cut_off = "\n> The answer was cut off.\n" if data.get("cut_off") else ""
            return f"\n## Assistant\n\n*{time}*\n{text}{cut_off}"
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


def _printable(text: str) -> str:
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", _LINE_BREAK.sub("\n", text))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _time(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"

"""A server whose every text would take over a terminal. It replaces the I/O of the client: nothing is sent."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, date, datetime
from typing import Any
from unittest.mock import patch
from uuid import UUID

import msgspec
from msgspec import inspect

from quarterdeck.client import Client
from quarterdeck.client.async_connection import AsyncConnection
from quarterdeck.client.calls import Call, Response
from quarterdeck.client.models import Event, EventType
from quarterdeck.client.transfers import Download

ID = UUID("0190a000-0000-7000-8000-000000000001")
NOW = datetime(2030, 1, 2, tzinfo=UTC)
# Title, colour, clear, C1 sequence, reset, bidirectional override and isolate, backspace, line start, line separator.
HOSTILE = "be\x1b]0;owned\x07\x1b[45m\x1b[2J\x9b5n\x1bc\u202e\u2066\x08\r\u2028fore"
_KEYS = ("text", "reason", "name", "tool", "call_id", "description", "message", "model", "session_id", "display_name")
_ANY = {
    **dict.fromkeys((*_KEYS, HOSTILE), HOSTILE),
    "arguments": {HOSTILE: HOSTILE},
    "skills": [{"name": HOSTILE, "version": 1}],
    "attachments": [{"name": HOSTILE, "media_type": HOSTILE, "bytes": 1, "file_id": str(ID)}],
    "actor": {"display_name": HOSTILE, "primary_email": HOSTILE},
    "files": [],
    "action_id": str(ID),
    "input_id": str(ID),
    "kind": "approval",
    "attempt": 1,
}


@contextmanager
def hostile_server(status: int = 200) -> Iterator[None]:
    def send(self: object, request: object, upload: object, download: Download | None) -> Response:
        if status != 200:
            error = {"error": {"code": "internal" if status >= 500 else "invalid_request", "message": HOSTILE}}
            headers = {"x-request-id": HOSTILE, "location": HOSTILE}
            return Response(status, headers, b"" if status < 400 else msgspec.json.encode(error))
        if download is not None:
            download.start({})
            # In two pieces, with a character across them.
            content = HOSTILE.encode()
            download.write(content[: content.index(b"\xc2") + 1])
            download.write(content[content.index(b"\xc2") + 1 :])
        return Response(200, {}, b"")

    async def send_async(self: object, request: object, upload: object, download: Download | None) -> Response:
        return send(self, request, upload, download)

    with ExitStack() as patches:
        patches.enter_context(patch.object(Client, "_send", send))
        patches.enter_context(patch.object(AsyncConnection, "_send", send_async))
        patches.enter_context(patch.object(Call, "_retry", lambda self, error, outcome: raise_(error)))
        patches.enter_context(
            patch.object(Call, "_result", lambda self, response: result(self.request.operation.result))
        )
        yield


def raise_(error: Exception) -> None:
    raise error


def result(kind: Any) -> Any:
    return None if kind is type(None) else _value(inspect.type_info(kind))


def _value(kind: inspect.Type) -> Any:
    match kind:
        case inspect.StructType(cls=cls, fields=fields):
            return cls(**{each.name: None if each.name == "next_cursor" else _value(each.type) for each in fields})
        case inspect.ListType(item_type=inspect.StructType(cls=cls)) if cls is Event:
            return [Event(number, ID, ID, each, NOW, _ANY) for number, each in enumerate([*EventType, HOSTILE], 1)]
        case inspect.ListType(item_type=item):
            return [_value(item), _value(item)]
        case inspect.Metadata(type=inner):
            return _value(inner)
        case inspect.AnyType() | inspect.DictType(value_type=inspect.AnyType()):
            return _ANY
        case inspect.DictType(value_type=value):
            return {HOSTILE: _value(value)}
        case inspect.UnionType(types=types):
            return _value(next(each for each in types if not isinstance(each, inspect.NoneType)))
        case inspect.EnumType(cls=cls):
            return next(iter(cls))
        case inspect.LiteralType(values=values):
            return values[0]
    return _SIMPLE[type(kind)]


_SIMPLE: dict[type, Any] = {
    inspect.StrType: HOSTILE,
    inspect.UUIDType: ID,
    inspect.DateTimeType: NOW,
    inspect.DateType: date(2030, 1, 2),
    inspect.IntType: 1,
    inspect.FloatType: 1.0,
    inspect.BoolType: True,
}

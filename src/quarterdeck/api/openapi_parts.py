"""The parts of the OpenAPI document that operations share: introduction, parameters, headers, security schemes."""

import re
from typing import Any

from quarterdeck.core.pages import DEFAULT_LIMIT, MAX_LIMIT
from quarterdeck.http.request import MAX_EVENT_ID
from quarterdeck.http.schemas import UUID, UUID_HEADER
from quarterdeck.http.sse import EVENT_STREAM

Json = dict[str, Any]


def reference(section: str, name: str) -> Json:
    return {"$ref": f"#/components/{section}/{name}"}


def camel_case(name: str) -> str:
    """`submit_input`, `session.manage` and `API key` become `SubmitInput`, `SessionManage` and `ApiKey`."""
    return "".join(word.capitalize() for word in re.split(r"[ _.]", name))


def _digits_up_to(largest: int) -> str:
    """A pattern for the integers from 0 to `largest`; smaller ones may have leading zeros."""
    digits = str(largest)
    length = len(digits)
    smaller = [
        f"{digits[:place]}[0-{int(digit) - 1}][0-9]{{{length - place - 1}}}"
        for place, digit in enumerate(digits)
        if digit != "0"
    ]
    return f"^([0-9]{{1,{length - 1}}}|{'|'.join(smaller)}|{digits})$"


DESCRIPTION = """\
Quarterdeck runs agents in sessions. A session takes user turns; each starts a run or steers the one that is active.
Workspaces hold the API keys, sessions and skills.

**Credentials.** Every call carries `Authorization: Bearer …`. An API key (`qd_…`) belongs to one workspace and holds \
permissions; each operation names those it needs. A session token (`qds_…`) holds none and works on its own session \
only. What a credential cannot see answers 404, exactly like what does not exist.

**Errors.** Every error is `{"error": {"code", "message"}}`. Branch on `code`, which is one of nine; `message` is for \
people. An unknown path is 404 `not_found`, a method that a path lacks 405 `invalid_request` with `Allow`. \
Every answer has an `X-Request-Id`, yours if you sent one, which also stands in the server's log.

**Limits.** The requests of a credential and of a workspace are limited, unless the operator turns this off. Answers \
say in `RateLimit` how many are left, and one too many is 429 with `Retry-After`. So are open event streams.

**Retries.** Send an `Idempotency-Key` of your choice with a change and repeat the request as often as you need: it \
takes effect once, and later answers are the saved one with `Idempotency-Replayed: true`. The same key with another \
input is 409. Secrets that are shown once are left out of saved answers. A key is remembered for at least seven days; \
failed requests do not use it up.

**Pages.** Lists come newest first, or oldest first with `order=asc`. Pass `next_cursor` as `after` for the next \
page, until it is null.

**Changes.** Sessions and skills carry an `ETag`. Send it back as `If-Match` with a change, and if somebody else was \
first the answer is 412 and nothing is done.

**Forms.** Ids are UUIDs written 8-4-4-4-12. Times are ISO 8601 with an offset. Unknown fields of a JSON body are \
ignored. Bodies must not be compressed with Content-Encoding.
"""

PARAMETERS: Json = {
    "Workspace": {
        "name": "Service-Workspace",
        "in": "header",
        "required": False,
        "description": "ID of the workspace that is meant. Without it, the credential's own.",
        "schema": UUID_HEADER,
    },
    "RequiredWorkspace": {
        "name": "Service-Workspace",
        "in": "header",
        "required": True,
        "description": "ID of the workspace that is meant.",
        "schema": UUID_HEADER,
    },
    "IdempotencyKey": {
        "name": "Idempotency-Key",
        "in": "header",
        "required": False,
        "description": "Printable characters of your choice. The same key with the same request takes effect once.",
        # Excludes the non-printable characters of Latin-1. No portable pattern covers the others.
        "schema": {
            "type": "string",
            "minLength": 1,
            "maxLength": 255,
            "pattern": r"^[^\u0000-\u001f\u007f-\u00a0\u00ad]*$",
        },
    },
    "IfMatch": {
        "name": "If-Match",
        "in": "header",
        "required": False,
        "description": "The ETag that was read last, with its quotes, several of them, or `*`. If none is the current "
        "one, nothing is done and the answer is 412.",
        "schema": {"type": "string"},
    },
    "IfNoneMatch": {
        "name": "If-None-Match",
        "in": "header",
        "required": False,
        "description": "The ETag of what the caller has. If that is still current, the answer is 304.",
        "schema": {"type": "string"},
    },
    "Range": {
        "name": "Range",
        "in": "header",
        "required": False,
        "description": "The bytes that are wanted, as `bytes=0-1023`, `bytes=1024-` or `bytes=-1024`. Several ranges "
        "at once are answered with the whole.",
        "schema": {"type": "string"},
    },
    "IfRange": {
        "name": "If-Range",
        "in": "header",
        "required": False,
        "description": "The ETag of what the caller has a part of. If it is another, Range is ignored.",
        "schema": {"type": "string"},
    },
    "Limit": {
        "name": "limit",
        "in": "query",
        "required": False,
        "description": "How many to list at most.",
        "schema": {"type": "integer", "format": "int64", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT},
    },
    "After": {
        "name": "after",
        "in": "query",
        "required": False,
        "description": "The `next_cursor` of the page before. Without it, the first page.",
        "schema": UUID,
    },
    "AfterEvent": {
        "name": "after",
        "in": "query",
        "required": False,
        "description": "The id of the last event that was read. Without it, or with 0, from the beginning.",
        "schema": {"type": "integer", "format": "int64", "minimum": 0, "maximum": MAX_EVENT_ID},
    },
    "LastEventId": {
        "name": "Last-Event-ID",
        "in": "header",
        "required": False,
        "description": "Like `after`, and wins over it: what a browser sends when it takes up a stream again.",
        # A string, as every header is: tools that test a server against the document send it unchanged.
        "schema": {"type": "string", "format": "int64", "pattern": _digits_up_to(MAX_EVENT_ID)},
    },
    "Order": {
        "name": "order",
        "in": "query",
        "required": False,
        "description": "Newest first (`desc`) or oldest first (`asc`).",
        "schema": {"type": "string", "enum": ["asc", "desc"], "default": "desc"},
    },
}

EVENT_STREAM_CONTENT: Json = {
    EVENT_STREAM: {
        "schema": {
            "type": "string",
            "description": "With `Accept: text/event-stream`. Each event has its id as `id`, its type as `event` and, "
            "as `data`, the JSON that a page holds. What the agent is writing comes as `message.delta`, whose `data` "
            "is `session_id`, `run_id`, `attempt` and `text`; it has no id and is not stored: the whole text follows "
            "as a `message`. A comment comes when nothing else does. The stream ends with the credential, with the "
            "session, or with the server that sends it: come back with the last id as `Last-Event-ID`, and nothing is "
            "missed or repeated.",
        },
        "example": "retry: 1000\n\n"
        "id: 118\nevent: run.started\n"
        'data: {"id":118,"session_id":"0192f0c4-77d8-7a10-8e52-6b0d4f8a1c02",'
        '"run_id":"0192f0d3-8c5e-7e02-9f71-2a6b4d8c0e06","type":"run.started",'
        '"created_at":"2026-03-02T18:05:00Z","data":{"attempt":1}}\n\n'
        "event: message.delta\n"
        'data: {"session_id":"0192f0c4-77d8-7a10-8e52-6b0d4f8a1c02",'
        '"run_id":"0192f0d3-8c5e-7e02-9f71-2a6b4d8c0e06","attempt":1,"text":"Three incidents"}\n\n',
    }
}

RESPONSE_HEADERS: Json = {
    "ETag": {
        "required": True,
        "description": "Stands for the record as it is now. Send it as If-Match to change what you have read.",
        "schema": {"type": "string", "pattern": '^"[0-9]+"$'},
    },
    "X-Request-Id": {
        "required": True,
        "description": "Finds this request in the server's log. The caller's own, if it sent one of this form.",
        "schema": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"},
    },
    "Idempotency-Replayed": {
        "required": False,
        "description": "Present when the answer is the saved one of an earlier request with this Idempotency-Key.",
        "schema": {"type": "string", "enum": ["true"]},
    },
    "RateLimit": {
        "required": False,
        "description": "While requests are limited: how many are left now (`r`), and after how many seconds there is "
        "one more (`t`). For the credential, the workspace, or both.",
        "schema": {"type": "string"},
    },
    "RateLimit-Policy": {
        "required": False,
        "description": "While requests are limited: how many (`q`) are allowed in how many seconds (`w`), in the long "
        "run.",
        "schema": {"type": "string"},
    },
    "WWW-Authenticate": {
        "required": False,
        "description": "The kind of credential that is wanted.",
        "schema": {"type": "string", "enum": ["Bearer"]},
    },
    "Retry-After": {
        "required": False,
        "description": "Try again after this many seconds.",
        "schema": {"type": "integer", "minimum": 0},
    },
}

# Headers of a download, whole or partial.
DOWNLOAD_HEADERS: Json = {
    "ETag": {
        "required": True,
        "description": "The SHA-256 of the whole content.",
        "schema": {"type": "string", "pattern": '^"[0-9a-f]{64}"$'},
    },
    "Accept-Ranges": {
        "required": True,
        "description": "Parts can be asked for with Range.",
        "schema": {"type": "string", "enum": ["bytes"]},
    },
    "Content-Disposition": {
        "required": True,
        "description": "A name to save it under.",
        "schema": {"type": "string", "pattern": '^attachment; filename="[A-Za-z0-9._-]+"$'},
    },
}
PART_HEADERS: Json = {
    "Content-Range": {
        "required": True,
        "description": "Which bytes these are, and of how many.",
        "schema": {"type": "string", "pattern": "^bytes [0-9]+-[0-9]+/[0-9]+$"},
    },
}

SECURITY_SCHEMES: Json = {
    "api_key": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "qd_<environment>_<secret>",
        "description": "An API key. The names beside it are the permissions that it must hold.",
    },
    "session_token": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "qds_<environment>_<secret>",
        "description": "A token of the session in the path. It needs no permission.",
    },
}

"""The parts of the OpenAPI document that operations share: introduction, parameters, headers, security schemes."""

import re
from typing import Any

from quarterdeck.core.call import TAGS_PATTERN
from quarterdeck.core.operation import MAX_NUMBER
from quarterdeck.core.pages import MAX_EVENT_ID
from quarterdeck.http.sse import EVENT_STREAM

Json = dict[str, Any]

# Either case is read; the server writes lower case.
UUID: Json = {
    "type": "string",
    "format": "uuid",
    "pattern": "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$",
}
NUMBER: Json = {"type": "integer", "format": "int32", "minimum": 1, "maximum": MAX_NUMBER}
BINARY: Json = {"type": "string", "format": "binary"}


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
        f"{digits[:position]}[0-{int(digit) - 1}][0-9]{{{length - position - 1}}}"
        for position, digit in enumerate(digits)
        if digit != "0"
    ]
    return f"^([0-9]{{1,{length - 1}}}|{'|'.join(smaller)}|{digits})$"


def _header(name: str, description: str, schema: Json, *, required: bool = False) -> Json:
    return {"name": name, "in": "header", "required": required, "description": description, "schema": schema}


def _response_header(description: str, schema: Json, *, required: bool = False) -> Json:
    return {"required": required, "description": description, "schema": schema}


DESCRIPTION = """\
Quarterdeck runs agents in sessions. An input to a session starts a run, or steers the active run. Workspaces hold \
API keys, sessions and skills.

**Authentication.** Send `Authorization: Bearer …` with every request. An API key (`qd_…`) belongs to one workspace \
and has permissions; each operation lists those it needs. A session token (`qds_…`) has no permissions and works \
only for its session. Objects that a credential cannot see return 404, as if they did not exist.

**Errors.** Every error is `{"error": {"code", "message"}}`. Branch on `code`, which is one of nine; `message` is \
for people. An unknown path returns 404 `not_found`, an unsupported method 405 `invalid_request` with `Allow`. Every \
response has an `X-Request-Id`, which is also in the server's log; you can send your own.

**Rate limits.** Requests are limited per credential and per workspace, unless the operator turns this off. \
`RateLimit` shows how many requests are left. Above the limit the response is 429 with `Retry-After`. Open event \
streams are limited, too.

**Retries.** Send a unique `Idempotency-Key` with a change to make retries safe: it takes effect once, and repeated \
requests return the saved response with `Idempotency-Replayed: true`. The same key with a different request returns \
409. Secrets that are shown only once are not part of saved responses. Keys are stored for at least seven days; \
failed requests do not use them up.

**Pagination.** Lists are sorted newest first, or oldest first with `order=asc`; files of sessions are sorted \
by path. Pass `next_cursor` as `after` to get the next page, until it is null.

**Concurrent changes.** Sessions and skills have an `ETag`. Send it as `If-Match` with a change: if the object has \
changed since, the response is 412 and nothing is done.

**Formats.** IDs are UUIDs in the form 8-4-4-4-12. Times are ISO 8601 with an offset. A field of a JSON body or a \
query parameter that the operation does not have is refused. Content-Encoding is not supported in requests.
"""

PARAMETERS: Json = {
    "Workspace": _header("Service-Workspace", "ID of the workspace. Default: the workspace of the credential.", UUID),
    "RequiredWorkspace": _header("Service-Workspace", "ID of the workspace.", UUID, required=True),
    "IdempotencyKey": _header(
        "Idempotency-Key",
        "A unique value of printable characters. A repeated request with the same key takes effect once.",
        # Excludes the non-printable characters of Latin-1. No portable pattern covers the others.
        {
            "type": "string",
            "minLength": 1,
            "maxLength": 255,
            "pattern": r"^[^\u0000-\u001f\u007f-\u00a0\u00ad]*$",
        },
    ),
    "IfMatch": _header(
        "If-Match",
        "One or more ETags with their quotes, or `*`. If none is current, nothing is done and the response is 412.",
        {"type": "string", "pattern": TAGS_PATTERN},
    ),
    "IfNoneMatch": _header(
        "If-None-Match", "ETag of the cached response. If it is still current, the response is 304.", {"type": "string"}
    ),
    "Range": _header(
        "Range",
        "Bytes to return: `bytes=0-1023`, `bytes=1024-` or `bytes=-1024`. Multiple ranges return the whole content.",
        {"type": "string"},
    ),
    "IfRange": _header(
        "If-Range", "ETag of the partial content. If it is not current, Range is ignored.", {"type": "string"}
    ),
    "LastEventId": _header(
        "Last-Event-ID",
        "Like `after`, which it overrides. Sent by browsers when they reconnect to a stream.",
        # A string, as every header is: tools that test a server against the document send it unchanged.
        {"type": "string", "format": "int64", "pattern": _digits_up_to(MAX_EVENT_ID)},
    ),
}

EVENT_STREAM_CONTENT: Json = {
    EVENT_STREAM: {
        "schema": {
            "type": "string",
            "description": "With `Accept: text/event-stream`. Each event has its ID as `id`, its type as `event` and "
            "the same JSON as in a page as `data`. Text that the agent is writing is sent as `message.delta` with "
            "`session_id`, `run_id`, `attempt`, `text`, `text_number` and `offset`. It has no ID and is not stored: "
            "the complete text follows as `message`. A stream sends each text from its beginning (`offset` 0) and "
            "without gaps, also if it is opened in the middle. A text with a higher `text_number` replaces the one "
            "before. Output of a running tool call is sent as `tool.delta` in the same way, with its "
            "`call_id`, and the result follows as `tool.result`. If a request to the model fails and is repeated, "
            "`model.retry` is sent, without an ID too, with `session_id`, `run_id`, `attempt` (number of the request "
            "that follows), `retry_in_seconds` and `reason`; the text of the message then begins anew. Comments are "
            "sent as heartbeats. The stream ends when "
            "the credential or the session ends or the server restarts. Reconnect with the last ID as "
            "`Last-Event-ID` to continue "
            "without gaps or duplicates.",
        },
        "example": "retry: 1000\n\n"
        "id: 118\nevent: run.started\n"
        'data: {"id":118,"session_id":"0192f0c4-77d8-7a10-8e52-6b0d4f8a1c02",'
        '"run_id":"0192f0d3-8c5e-7e02-9f71-2a6b4d8c0e06","type":"run.started",'
        '"created_at":"2026-03-02T18:05:00Z","data":{"attempt":1}}\n\n'
        "event: message.delta\n"
        'data: {"session_id":"0192f0c4-77d8-7a10-8e52-6b0d4f8a1c02",'
        '"run_id":"0192f0d3-8c5e-7e02-9f71-2a6b4d8c0e06","attempt":1,"text":"Three incidents",'
        '"text_number":1,"offset":0}\n\n',
    }
}

RESPONSE_HEADERS: Json = {
    "ETag": _response_header(
        "Version of the record. Send it as If-Match to change only what you have read.",
        {"type": "string", "pattern": '^"[0-9]+"$'},
        required=True,
    ),
    "X-Request-Id": _response_header(
        "Identifies this request in the server's log. Same as in the request if it had a valid one.",
        {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"},
        required=True,
    ),
    "Idempotency-Replayed": _response_header(
        "Present if this is the saved response of an earlier request with the same Idempotency-Key.",
        {"type": "string", "enum": ["true"]},
    ),
    "RateLimit": _response_header(
        "With rate limits: requests left (`r`) and seconds until one more is available (`t`), for the "
        "credential, the workspace, or both.",
        {"type": "string"},
    ),
    "RateLimit-Policy": _response_header(
        "With rate limits: requests (`q`) allowed per window of seconds (`w`).", {"type": "string"}
    ),
    "WWW-Authenticate": _response_header("The required kind of credential.", {"type": "string", "enum": ["Bearer"]}),
    "Retry-After": _response_header("Retry after this many seconds.", {"type": "integer", "minimum": 0}),
}

# Headers of a download, whole or partial.
DOWNLOAD_HEADERS: Json = {
    "ETag": _response_header(
        "SHA-256 of the whole content.", {"type": "string", "pattern": '^"[0-9a-f]{64}"$'}, required=True
    ),
    "Accept-Ranges": _response_header(
        "Range requests are supported.", {"type": "string", "enum": ["bytes"]}, required=True
    ),
    "Content-Disposition": _response_header(
        "Suggested file name.",
        {
            "type": "string",
            "pattern": "^attachment; filename=\"[A-Za-z0-9._-]+\"(; filename[*]=UTF-8''[A-Za-z0-9._~%-]+)?$",
        },
        required=True,
    ),
}
PART_HEADERS: Json = {
    "Content-Range": _response_header(
        "Range of the returned bytes and total size.",
        {"type": "string", "pattern": "^bytes [0-9]+-[0-9]+/[0-9]+$"},
        required=True,
    ),
}

SECURITY_SCHEMES: Json = {
    "api_key": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "qd_<environment>_<secret>",
        "description": "An API key with the listed permissions.",
    },
    "device": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "qdd_<environment>_<secret>",
        "description": "A browser or command line that a person has signed in with. It may do what the role of the "
        "person allows in the workspace of the header Service-Workspace. Browsers send it as a cookie, with the header "
        "Quarterdeck-Client.",
    },
    "session_token": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "qds_<environment>_<secret>",
        "description": "A token of the session in the path. No permission is needed.",
    },
}

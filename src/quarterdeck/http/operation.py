"""What an operation of the API is: enough to route it, to document it, and to test it against every kind of caller."""

import re
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from functools import partial
from typing import Any, get_type_hints

from msgspec import Struct
from starlette.responses import Response

from quarterdeck.core.actors import Permission
from quarterdeck.core.call import Answer
from quarterdeck.core.errors import ServiceError
from quarterdeck.http.request import Request

Result = Answer | Response | Struct
# Takes the request, and by the types of its other parameters whatever the operation needs.
Handler = Callable[..., Awaitable[Result]]


class Payload(Enum):
    NONE = "none"
    GZIP = "gzip"


class Refusal(Struct, frozen=True):
    """One way in which an operation says no. `fault` is what the caller would get, so status and code come from it."""

    name: str
    fault: ServiceError
    when: str
    remedy: str


class Query(Struct, frozen=True):
    """A query parameter beside those of pages."""

    name: str
    schema: dict[str, Any]
    description: str
    required: bool = False
    example: str | int | None = None


class Described(Struct, frozen=True, kw_only=True):
    """An operation but for its place in the API."""

    name: str
    handler: Handler
    summary: str
    description: str = ""
    # None: any key or session token that is alive will do.
    permission: Permission | None
    # A type is a JSON body of that type.
    payload: Any = Payload.NONE
    success_status: int = 200
    # None: the answer has no body.
    success_type: Any = None
    # The media type of an answer that is content and not JSON. It has an ETag and can be asked for in parts.
    download: str | None = None
    # What the success status means.
    success: str
    workspace_required: bool = False
    paged: bool = False
    # Whether what is listed stays: then a cursor that the list never gave out is refused.
    cursor_must_exist: bool = True
    queries: tuple[Query, ...] = ()
    # Whether the answer carries the ETag of the record that it holds.
    etag: bool = False
    # Whether If-Match is heeded.
    conditional: bool = False
    # Pages of a log, oldest first, by the numbers of its entries; and the same as Server-Sent Events.
    log: bool = False
    idempotent: bool = False
    # Whether a token of the session in the path may call it; other tokens see nothing.
    session_token: bool = False
    # Whether lacking the permission shows as 404, where the interface lists no 403.
    hides_forbidden: bool = False
    # Beside those that follow from the fields above: see `refusals.py`.
    refusals: tuple[Refusal, ...] = ()


class Operation(Described, frozen=True, kw_only=True):
    method: str
    path: str

    @property
    def path_ids(self) -> list[str]:
        return re.findall(r"{(\w+_id)}", self.path)

    @property
    def path_numbers(self) -> list[str]:
        return [name for name in re.findall(r"{(\w+)}", self.path) if name not in self.path_ids]


def operation(**description: Any) -> Callable[[Handler], Described]:
    """Describes the handler below it, whose name is the operation's from the route to the test."""

    def describe(handler: Handler) -> Described:
        return Described(name=handler.__name__, handler=handler, **description)

    return describe


def at(method: str, path: str, described: Described) -> Operation:
    return Operation(
        method=method, path=path, **{name: getattr(described, name) for name in described.__struct_fields__}
    )


def bind(handler: Handler, provided: Mapping[type, object]) -> Callable[[Request], Awaitable[Result]]:
    """Give a handler what it asks for: each parameter besides the request is filled by its type."""
    types = get_type_hints(handler)
    return partial(handler, **{name: provided[types[name]] for name in types if name not in ("request", "return")})

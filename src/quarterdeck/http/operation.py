"""The description of an API operation: used for routing, for the OpenAPI document and for tests of every caller."""

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
# Takes the request. Other parameters are filled by their types: see `bind`.
Handler = Callable[..., Awaitable[Result]]


class Payload(Enum):
    NONE = "none"
    GZIP = "gzip"
    # A body of any media type.
    FILE = "file"


class Refusal(Struct, frozen=True):
    """One error of an operation. Status and code are those of `fault`."""

    name: str
    fault: ServiceError
    when: str
    remedy: str


class Query(Struct, frozen=True):
    """A query parameter besides those for paging."""

    name: str
    schema: dict[str, Any]
    description: str
    required: bool = False
    example: str | int | None = None


class Described(Struct, frozen=True, kw_only=True):
    """An operation without its method and path."""

    name: str
    handler: Handler
    summary: str
    description: str = ""
    # None: any valid key or session token.
    permission: Permission | None
    # Whether a change needs `workspace.read` too, because its response shows what was stored before.
    reads: bool = False
    # A type is a JSON body of that type.
    payload: Any = Payload.NONE
    success_status: int = 200
    # None: the response has no body.
    success_type: Any = None
    # The media type of a download. Downloads have an ETag and support Range.
    download: str | None = None
    # Media types of a response that is made while it is sent: the first by default, the others by `Accept`. It has
    # neither an ETag nor a known length.
    formats: tuple[str, ...] = ()
    # Description of the success response.
    success: str
    workspace_required: bool = False
    paged: bool = False
    # Whether listed records are never deleted: an unknown cursor is then refused.
    cursor_must_exist: bool = True
    queries: tuple[Query, ...] = ()
    # Whether the response has the ETag of its record.
    etag: bool = False
    # Whether If-Match is evaluated.
    conditional: bool = False
    # Pages of a log, oldest first, with event ids as cursors; also available as Server-Sent Events.
    log: bool = False
    # Pages sorted by path, with paths as cursors.
    by_path: bool = False
    idempotent: bool = False
    # Whether a token of the session in the path may call it; other tokens get 404.
    session_token: bool = False
    # Whether a missing permission is answered 404, where the interface lists no 403.
    hides_forbidden: bool = False
    # Besides those that follow from the fields above: see `api/error_docs.py`.
    refusals: tuple[Refusal, ...] = ()


class Operation(Described, frozen=True, kw_only=True):
    method: str
    path: str

    @property
    def permissions(self) -> list[Permission]:
        """All that a key needs."""
        found = [] if self.permission is None else [self.permission]
        return [*found, Permission.WORKSPACE_READ] if self.reads else found

    @property
    def query_names(self) -> list[str]:
        """The query parameters, those for paging included. Others are refused."""
        paging = ["limit", "after"] if self.paged or self.by_path or self.log else []
        order = ["order"] if self.paged else []
        return [*(query.name for query in self.queries), *paging, *order]

    @property
    def path_ids(self) -> list[str]:
        return re.findall(r"{(\w+_id)}", self.path)

    @property
    def path_numbers(self) -> list[str]:
        return [name for name in re.findall(r"{(\w+)}", self.path) if name not in self.path_ids]


def operation(**description: Any) -> Callable[[Handler], Described]:
    """Decorator for a handler. The name of the handler is the name of the operation."""

    def describe(handler: Handler) -> Described:
        return Described(name=handler.__name__, handler=handler, **description)

    return describe


def at(method: str, path: str, described: Described) -> Operation:
    return Operation(
        method=method, path=path, **{name: getattr(described, name) for name in described.__struct_fields__}
    )


def bind(handler: Handler, provided: Mapping[type, object]) -> Callable[[Request], Awaitable[Result]]:
    """Fill every parameter of a handler besides the request by its type."""
    types = get_type_hints(handler)
    return partial(handler, **{name: provided[types[name]] for name in types if name not in ("request", "return")})

"""The declaration of an API operation, above the function that carries it out. The route, the parsing of the request,
the checks of the caller, the OpenAPI document, the client and the tests of every caller follow from it."""

import re
from collections.abc import Awaitable, Callable
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from functools import cached_property
from inspect import isclass
from types import NoneType
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import Meta, Struct, field

from quarterdeck.core.actors import Permission
from quarterdeck.core.errors import ServiceError
from quarterdeck.core.pages import MAX_PATH_BYTES, LogPageRequest, PageRequest, PathPageRequest

Function = Callable[..., Awaitable[Any]]
F = TypeVar("F", bound=Function)
Json = dict[str, Any]

_PAGES = (PageRequest, LogPageRequest, PathPageRequest)
_DECLARED: dict[Function, "Declaration"] = {}


class Payload(Enum):
    NONE = "none"
    GZIP = "gzip"
    # A body of any media type.
    FILE = "file"


class ErrorCase(Struct, frozen=True):
    """One error of an operation. Status and code are those of `fault`."""

    name: str
    fault: ServiceError
    when: str
    remedy: str


class Query(Struct, frozen=True):
    """The query parameters of an operation besides those for paging. Parsed and documented by the types of the fields:
    see `http/parameters.py`."""

    def fault(self) -> str | None:
        """What is wrong with the values together, if each is valid by itself."""
        return None


class QueryParameter(Struct, frozen=True):
    name: str
    schema: Json
    description: str
    required: bool
    example: str | int | None = None


class Declaration(Struct, frozen=True, kw_only=True, dict=True):
    """An operation without its method and path. Parameters of the function are the ids and numbers of the path, a
    request for a page, a `Query`, the `Call` with its body, and objects of the process, found by their types."""

    function: Function
    summary: str
    description: str = ""
    # None: any valid credential.
    permission: Permission | None
    # Whether it needs no credential: for people who are signing in.
    public: bool = False
    # Whether it belongs to a person and not to a workspace: only devices of people may call it, others get 404.
    personal: bool = False
    # Whether a change needs `workspace.read` too, because its response shows what was stored before.
    reads: bool = False
    # How a body that is not JSON is sent.
    upload: Payload = Payload.NONE
    created: bool = False
    # The media type of a download. Downloads have an ETag and support Range.
    download: str | None = None
    # Media types of a response that is made while it is sent: the first by default, the others by `Accept`. It has
    # neither an ETag nor a known length.
    formats: tuple[str, ...] = ()
    # Description of the success response.
    success: str
    workspace_required: bool = False
    # Whether listed records are never deleted: an unknown cursor is then refused.
    cursor_must_exist: bool = True
    # Whether the response has the ETag of its record.
    etag: bool = False
    # Whether If-Match is evaluated.
    conditional: bool = False
    idempotent: bool = False
    # Whether a token of the session in the path may call it; other tokens get 404.
    session_token: bool = False
    # Whether a trusted job may call it for its skill, which is the first in the path; other keys of jobs get 404.
    trusted_job: bool = False
    # Whether a missing permission is answered 404, where the interface lists no 403.
    hides_forbidden: bool = False
    # Besides those that follow from the fields above: see `api/error_docs.py`.
    refusals: tuple[ErrorCase, ...] = ()

    @property
    def name(self) -> str:
        return self.function.__name__

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """The types of the function's parameters."""
        return {name: type_ for name, type_ in get_type_hints(self.function).items() if name != "return"}

    @cached_property
    def payload(self) -> Any:
        """A type for a JSON body of that type."""
        (body_type,) = get_args(self.parameters["call"])
        return self.upload if body_type is NoneType else body_type

    @cached_property
    def success_type(self) -> Any:
        """None: the response has no JSON."""
        returned = get_type_hints(self.function)["return"]
        # `Answer[Record]`, or `Record`, or `Record | Response`.
        types = get_args(returned) or (returned,)
        return next((type_ for type_ in types if isclass(type_) and issubclass(type_, Struct)), None)

    @property
    def success_status(self) -> int:
        if self.created:
            return 201
        return 200 if self.success_type or self.download or self.formats else 204

    @property
    def permissions(self) -> list[Permission]:
        """All that a key needs."""
        found = [] if self.permission is None else [self.permission]
        return [*found, Permission.WORKSPACE_READ] if self.reads else found

    @property
    def paged(self) -> bool:
        return PageRequest in self.parameters.values()

    @property
    def log(self) -> bool:
        """Pages of a log, oldest first, with event ids as cursors; also available as Server-Sent Events."""
        return LogPageRequest in self.parameters.values()

    @property
    def by_path(self) -> bool:
        """Pages sorted by path, with paths as cursors."""
        return PathPageRequest in self.parameters.values()

    @cached_property
    def queries(self) -> list[QueryParameter]:
        """The query parameters, those for paging last. Others are refused."""
        found = [type_ for type_ in self.parameters.values() if isclass(type_) and issubclass(type_, (Query, *_PAGES))]
        found.sort(key=lambda type_: type_ in _PAGES)
        return [parameter for type_ in found for parameter in _query_parameters(type_)]


class Operation(Declaration, frozen=True, kw_only=True, dict=True):
    method: str
    path: str

    @property
    def path_ids(self) -> list[str]:
        return re.findall(r"{(\w+_id)}", self.path)

    @property
    def path_numbers(self) -> list[str]:
        return [name for name in re.findall(r"{(\w+)}", self.path) if name not in self.path_ids]


def operation(**declaration: Any) -> Callable[[F], F]:
    """Declares a function as an operation of the same name."""

    def declare(function: F) -> F:
        _DECLARED[function] = Declaration(function=function, **declaration)
        return function

    return declare


def at(method: str, path: str, function: Function) -> Operation:
    return Operation(method=method, path=path, **msgspec.structs.asdict(_DECLARED[function]))


def _query_parameters(query_type: type[Struct]) -> list[QueryParameter]:
    _, components = msgspec.json.schema_components([query_type], ref_template="{name}")
    described = components[query_type.__name__]
    required = described.get("required", [])
    return [
        _query_parameter(name, schema, components, name in required) for name, schema in described["properties"].items()
    ]


def _query_parameter(name: str, schema: Json, components: Json, required: bool) -> QueryParameter:
    description, examples = schema.pop("description"), schema.pop("examples", [None])
    if "anyOf" in schema:
        # The type or null, which a query parameter cannot be.
        schema |= schema.pop("anyOf")[0]
        del schema["default"]
    if "$ref" in schema:
        schema = {"type": "string", "enum": components[schema.pop("$ref")]["enum"], **schema}
    return QueryParameter(name, schema, description, required, examples[0])


# Query parameters that several operations have.

MAX_NUMBER = 2**31 - 1
_NO_NUL = r"^[^\u0000]*$"
_DEFAULT_DAYS = 30
_MAX_DAYS = 366

Number = Annotated[int, Meta(ge=1, le=MAX_NUMBER, extra_json_schema={"format": "int32"})]
Text = Annotated[str, Meta(pattern=_NO_NUL)]
Path = Annotated[str, Meta(min_length=1, max_length=MAX_PATH_BYTES, pattern=r"^[^\u0000]+$")]
PathPrefix = Annotated[str, Meta(max_length=MAX_PATH_BYTES, pattern=_NO_NUL)]


class ArchivedQuery(Query, frozen=True):
    archived: Annotated[bool, Meta(description="List archived ones instead of active ones.")] = False


class VersionsQuery(Query, frozen=True):
    base: Annotated[Number, Meta(description="Number of the old version.", examples=[1])]
    head: Annotated[Number, Meta(description="Number of the new version.", examples=[2])]


class DaysQuery(Query, frozen=True):
    """Whole days in UTC."""

    from_: Annotated[
        date | None,
        Meta(
            description=f"First day. By default {_DEFAULT_DAYS} days before `to`, at most {_MAX_DAYS}. A time counts "
            "as its day.",
            examples=["2026-03-01"],
        ),
    ] = field(name="from", default=None)
    to: Annotated[
        date | None,
        Meta(
            description="The day after the last one. By default tomorrow. A time after midnight counts as the "
            "next day.",
            examples=["2026-04-01"],
            extra={"round_up": True},
        ),
    ] = None

    @property
    def end(self) -> date:
        return self.to or datetime.now(UTC).date() + timedelta(days=1)

    @property
    def start(self) -> date:
        """A longer period is shortened."""
        earliest, usual = (
            max(self.end, date.min + timedelta(days=days)) - timedelta(days=days) for days in (_MAX_DAYS, _DEFAULT_DAYS)
        )
        return usual if self.from_ is None else max(self.from_, earliest)

    def fault(self) -> str | None:
        is_reversed = self.from_ is not None and self.from_ > self.end
        return "from must not be after to, which is tomorrow by default." if is_reversed else None

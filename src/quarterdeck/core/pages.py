"""Keyset pagination: a page starts after the last id seen, so no item is skipped or repeated."""

from collections.abc import Awaitable, Callable
from enum import StrEnum
from functools import partial
from typing import Annotated, ClassVar, Protocol, TypeVar
from uuid import UUID

from msgspec import Meta, Struct

from quarterdeck.core import errors
from quarterdeck.core.ids import HIGHEST_ID, LOWEST_ID

DEFAULT_LIMIT = 50
MAX_LIMIT = 200
# The longest path of a file in a session. Paths have at most as many bytes, so none is longer.
MAX_PATH_BYTES = 1024
MAX_EVENT_ID = 2**63 - 1

Limit = Annotated[
    int, Meta(ge=1, le=MAX_LIMIT, description="Maximum number of items.", extra_json_schema={"format": "int64"})
]


class Order(StrEnum):
    ASC = "asc"
    DESC = "desc"


class PageRequest(Struct, frozen=True):
    """As `Query` in `core/operation.py`: the types parse and document the parameters."""

    limit: Limit = DEFAULT_LIMIT
    after: Annotated[
        UUID | None, Meta(description="The `next_cursor` of the previous page. Default: the first page.")
    ] = None
    order: Annotated[Order, Meta(description="Newest first (`desc`) or oldest first (`asc`).")] = Order.DESC
    cursor_must_exist: ClassVar[bool] = True

    @property
    def newest_first(self) -> bool:
        return self.order is Order.DESC


class LenientPageRequest(PageRequest, frozen=True):
    """For lists whose items can be deleted or filtered out: the item of a cursor may be missing, and the page continues
    from its position."""

    cursor_must_exist: ClassVar[bool] = False


class LogPageRequest(Struct, frozen=True):
    """A page of a log, whose entries are numbered. `after` may be any number, even of an entry that does not exist
    yet."""

    limit: Limit = DEFAULT_LIMIT
    after: Annotated[
        int,
        Meta(
            ge=0,
            le=MAX_EVENT_ID,
            description="ID of the last event read. Default: 0, from the beginning.",
            extra_json_schema={"format": "int64"},
        ),
    ] = 0


class PathPageRequest(Struct, frozen=True):
    """A page of a list that is sorted by path. `after` may be any text."""

    limit: Limit = DEFAULT_LIMIT
    after: Annotated[
        str,
        Meta(
            max_length=MAX_PATH_BYTES,
            pattern=r"^[^\u0000]*$",
            description="The `next_cursor` of the previous page: a path. Default: the first page.",
        ),
    ] = ""


def bounds(start: UUID, *, newest_first: bool) -> tuple[UUID, UUID]:
    """The lowest and highest possible id of a page that begins at `start`."""
    return (LOWEST_ID, start) if newest_first else (start, HIGHEST_ID)


class Identified(Protocol):
    @property
    def id(self) -> UUID: ...


Item = TypeVar("Item", bound=Identified)


async def take_page(
    request: PageRequest, fetch: Callable[..., Awaitable[list[Item]]], *scope: object, **filters: object
) -> tuple[list[Item], UUID | None]:
    """The items of the page and the next cursor. `fetch(*scope, start, count, newest_first=…, **filters)` returns
    `count` items from `start` on, inclusive."""
    fetch = partial(fetch, newest_first=request.newest_first, **filters)
    if request.after is None:
        items = await fetch(*scope, HIGHEST_ID if request.newest_first else LOWEST_ID, request.limit + 1)
    else:
        items = await fetch(*scope, request.after, request.limit + 2)
        found = bool(items) and items[0].id == request.after
        if request.cursor_must_exist and not found:
            raise errors.invalid("after is not a valid cursor of this list.")
        items = items[1:] if found else items
    if len(items) <= request.limit:
        return items, None
    items = items[: request.limit]
    return items, items[-1].id

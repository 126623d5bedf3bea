"""Keyset pagination: a page starts after the last id seen, so no item is skipped or repeated."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol, TypeVar
from uuid import UUID

from msgspec import Struct

from quarterdeck.core import errors
from quarterdeck.core.ids import HIGHEST_ID, LOWEST_ID

DEFAULT_LIMIT = 50
MAX_LIMIT = 200
# The longest path of a file in a session. Paths have at most as many bytes, so none is longer.
MAX_PATH_BYTES = 1024


class PageRequest(Struct, frozen=True):
    limit: int = DEFAULT_LIMIT
    after: UUID | None = None
    newest_first: bool = True
    # False for lists whose items can be deleted or filtered out: the item of a cursor may be missing then, and the page
    # continues from its position.
    cursor_must_exist: bool = True


class LogPageRequest(Struct, frozen=True):
    """A page of a log, whose entries are numbered. `after` may be any number, even of an entry that does not exist
    yet."""

    limit: int = DEFAULT_LIMIT
    after: int = 0


class PathPageRequest(Struct, frozen=True):
    """A page of a list that is sorted by path. `after` may be any text."""

    limit: int = DEFAULT_LIMIT
    after: str = ""


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

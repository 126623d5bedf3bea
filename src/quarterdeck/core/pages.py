"""Keyset pages: asked for by the last id seen, so that a walk neither skips nor repeats what existed when it began."""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar
from uuid import UUID

from msgspec import Struct

from quarterdeck.core import errors
from quarterdeck.core.ids import HIGHEST_ID, LOWEST_ID

DEFAULT_LIMIT = 50
MAX_LIMIT = 200


class PageRequest(Struct, frozen=True):
    limit: int = DEFAULT_LIMIT
    after: UUID | None = None
    newest_first: bool = True


class LogPageRequest(Struct, frozen=True):
    """A page of a log, whose entries are numbered. A log only grows: any number may be asked for, also one to come."""

    limit: int = DEFAULT_LIMIT
    after: int = 0


def bounds(start: UUID, *, newest_first: bool) -> tuple[UUID, UUID]:
    """The lowest and the highest id that a page from `start` on may hold."""
    return (LOWEST_ID, start) if newest_first else (start, HIGHEST_ID)


class Identified(Protocol):
    @property
    def id(self) -> UUID: ...


Item = TypeVar("Item", bound=Identified)


async def take_page(
    request: PageRequest, fetch: Callable[[UUID, int], Awaitable[list[Item]]], *, lasting: bool = True
) -> tuple[list[Item], UUID | None]:
    """`fetch(start, count)` gives `count` items from `start` on, itself included. Where items do not last, being
    deleted or filtered out, a cursor is a place only, which may be empty by now: a walk goes on from there."""
    if request.after is None:
        items = await fetch(HIGHEST_ID if request.newest_first else LOWEST_ID, request.limit + 1)
    else:
        items = await fetch(request.after, request.limit + 2)
        found = bool(items) and items[0].id == request.after
        if lasting and not found:
            raise errors.invalid("after is not a cursor of this list.")
        items = items[1:] if found else items
    if len(items) <= request.limit:
        return items, None
    items = items[: request.limit]
    return items, items[-1].id

"""Iterators over lists, which fetch pages as needed."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Protocol, TypeAlias, TypeVar
from uuid import UUID

Item = TypeVar("Item")
Cursor = TypeVar("Cursor", UUID, str)
Cursor_co = TypeVar("Cursor_co", covariant=True)


class CursorPage(Protocol[Item, Cursor_co]):
    @property
    def items(self) -> list[Item]: ...

    @property
    def next_cursor(self) -> Cursor_co | None: ...


# The page of most lists. Lists of files have paths as cursors.
Page: TypeAlias = CursorPage[Item, UUID]


def walk(fetch: Callable[[Cursor | None], CursorPage[Item, Cursor]]) -> Iterator[Item]:
    after = None
    while True:
        page = fetch(after)
        yield from page.items
        after = page.next_cursor
        if after is None:
            return


async def walk_async(fetch: Callable[[Cursor | None], Awaitable[CursorPage[Item, Cursor]]]) -> AsyncIterator[Item]:
    after = None
    while True:
        page = await fetch(after)
        for item in page.items:
            yield item
        after = page.next_cursor
        if after is None:
            return

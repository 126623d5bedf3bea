"""Iterators over lists, which fetch pages as needed."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Protocol, TypeVar
from uuid import UUID

Item = TypeVar("Item")
# The ID or the path of the last item.
Cursor = TypeVar("Cursor", UUID, str)
Cursor_co = TypeVar("Cursor_co", covariant=True)


class Page(Protocol[Item, Cursor_co]):
    @property
    def items(self) -> list[Item]: ...

    @property
    def next_cursor(self) -> Cursor_co | None: ...


def walk(fetch: Callable[[Cursor | None], Page[Item, Cursor]]) -> Iterator[Item]:
    after = None
    while True:
        page = fetch(after)
        yield from page.items
        after = page.next_cursor
        if after is None:
            return


async def walk_async(fetch: Callable[[Cursor | None], Awaitable[Page[Item, Cursor]]]) -> AsyncIterator[Item]:
    after = None
    while True:
        page = await fetch(after)
        for item in page.items:
            yield item
        after = page.next_cursor
        if after is None:
            return

"""A limited number of places that owners share. One owner holds at most a part of them, so others find a place."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager


class Places:
    def __init__(self, total: int, per_owner: int) -> None:
        self._free = total
        self._per_owner = per_owner
        self._held: Counter[Hashable] = Counter()
        # Owners that wait, in the order of their turns: an owner that gets a place goes behind the others.
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}

    def take_now(self, owner: Hashable) -> bool:
        """Takes a place without waiting. False if there is none for this owner. `release` gives it back."""
        if self._free == 0 or self._held[owner] >= self._per_owner:
            return False
        self._free -= 1
        self._held[owner] += 1
        return True

    def release(self, owner: Hashable) -> None:
        self._free += 1
        self._held[owner] -= 1
        if not self._held[owner]:
            # Owners come and go: those without a place are not kept.
            del self._held[owner]
        self._grant()

    @asynccontextmanager
    async def hold(self, owner: Hashable, wait_seconds: float) -> AsyncIterator[None]:
        """A place for the time of a `with` block. Raises TimeoutError if none becomes free in time."""
        await self._take(owner, wait_seconds)
        try:
            yield
        finally:
            self.release(owner)

    async def _take(self, owner: Hashable, wait_seconds: float) -> None:
        if self.take_now(owner):
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(granted)
        try:
            async with asyncio.timeout(wait_seconds):
                await granted
        except BaseException:
            if granted.done() and not granted.cancelled():
                # Granted in the moment of the timeout or of a cancellation.
                self.release(owner)
            else:
                self._forget(owner, granted)
            raise

    def _forget(self, owner: Hashable, granted: asyncio.Future[None]) -> None:
        queue = self._waiting[owner]
        queue.remove(granted)
        if not queue:
            del self._waiting[owner]

    def _grant(self) -> None:
        """Gives free places to those who wait. An owner that has its part is passed over."""
        for owner, queue in list(self._waiting.items()):
            # A cancelled one is still in the queue until its task has run.
            granted = next((one for one in queue if not one.done()), None)
            if granted is not None and self.take_now(owner):
                granted.set_result(None)
                self._forget(owner, granted)
                if queue:
                    self._waiting[owner] = self._waiting.pop(owner)

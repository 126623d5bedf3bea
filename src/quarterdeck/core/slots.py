"""A limited number of slots that owners share. One owner holds at most a part of them, so others find a slot."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Hashable
from contextlib import AsyncExitStack, asynccontextmanager

from quarterdeck.core import errors


class Slots:
    def __init__(self, total: int, per_owner: int) -> None:
        self._free = total
        self._per_owner = per_owner
        self._held: Counter[Hashable] = Counter()
        # Waiting callers, by owner. The owners are in the order of their turns.
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}

    def take_now(self, owner: Hashable) -> bool:
        """Takes a slot without waiting. False if there is none for this owner. `release` gives it back."""
        if self._free == 0 or self._held[owner] >= self._per_owner:
            return False
        self._free -= 1
        self._held[owner] += 1
        return True

    def release(self, owner: Hashable) -> None:
        self._free += 1
        self._held[owner] -= 1
        if not self._held[owner]:
            # Owners come and go: those without a slot are not kept.
            del self._held[owner]
        self._grant()

    @asynccontextmanager
    async def hold(self, owner: Hashable, wait_seconds: float) -> AsyncIterator[None]:
        """A slot for the time of a `with` block. Raises TimeoutError if none becomes free in time."""
        await self.take(owner, wait_seconds)
        try:
            yield
        finally:
            self.release(owner)

    async def take(self, owner: Hashable, wait_seconds: float) -> None:
        """As `hold`. `release` gives it back."""
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
                self._stop_waiting(owner, granted)
            raise

    def _stop_waiting(self, owner: Hashable, granted: "asyncio.Future[None]") -> None:
        queue = self._waiting.get(owner)
        # `_grant` has removed it already if it was cancelled just before.
        if queue is not None and granted in queue:
            queue.remove(granted)
            if not queue:
                del self._waiting[owner]

    def _grant(self) -> None:
        """Gives free slots to those who wait: next is the owner with the fewest slots, and owners with equally many
        take turns. So an owner that sends many requests delays the requests of others by no more than one slot."""
        while self._free and self._waiting:
            owner = min(self._waiting, key=self._held.__getitem__)
            if self._held[owner] >= self._per_owner:
                return
            queue = self._waiting.pop(owner)
            granted = queue.popleft()
            if queue:
                # Behind the other owners.
                self._waiting[owner] = queue
            if not granted.done() and self.take_now(owner):
                granted.set_result(None)


@asynccontextmanager
async def hold_slot(slots: Slots, owner: Hashable, wait_seconds: float, what: str) -> AsyncIterator[None]:
    """For requests: a caller that gets no slot in time is told to try again."""
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(slots.hold(owner, wait_seconds))
        except TimeoutError:
            raise errors.unavailable(f"Too many {what} in progress. Try again shortly.") from None
        yield

"""A statement that many ask for, made for all of them at once: who comes while it is under way is in the next one.

Nobody waits for a batch to fill, and who comes while a slow one is under way waits for it five milliseconds at most.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Generic, TypeAlias, TypeVar

from msgspec import Struct

from quarterdeck import errors
from quarterdeck.errors import ServiceError

# A call that is under way, by the timer that runs while it counts as quick.
Turn: TypeAlias = asyncio.TimerHandle
Item = TypeVar("Item")
Result = TypeVar("Result")

_AT_ONCE = 256
# One takes a millisecond.
_QUICK_SECONDS = 0.005


class _Waiting(Struct, Generic[Item, Result], frozen=True, eq=False):
    item: Item
    result: "asyncio.Future[Result]"


class Together(Generic[Item, Result]):
    def __init__(self, make: Callable[[Sequence[Item]], Awaitable[Sequence[Result]]]) -> None:
        """`make` gives a result for each item, in their order. Its fault is everybody's who was in it."""
        self._make = make
        self._waiting: list[_Waiting[Item, Result]] = []
        self._calls: set[asyncio.Task[None]] = set()
        # The latest, while it counts as quick.
        self._quick: Turn | None = None

    async def ask(self, item: Item) -> Result:
        result: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(item, result))
        if self._quick is None:
            self._go_on()
        return await result

    def begin_alone(self) -> Turn | None:
        """For who would rather make a call of its own: who comes meanwhile waits for its `end`. None: another is under
        way, and `ask` is the way."""
        return self._begin() if self._quick is None else None

    def end(self, turn: Turn) -> None:
        turn.cancel()
        if self._quick is turn:
            self._go_on()

    def _begin(self) -> Turn:
        """The timer also goes on in place of a call that never comes to its end."""
        self._quick = turn = asyncio.get_running_loop().call_later(_QUICK_SECONDS, self._go_on)
        return turn

    def _go_on(self) -> None:
        self._quick = None
        if self._waiting:
            call = asyncio.create_task(self._call(self._begin()))
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)

    async def _call(self, turn: Turn) -> None:
        # Only now: others may have come in the same turn of the loop.
        batch, self._waiting = self._waiting[:_AT_ONCE], self._waiting[_AT_ONCE:]
        try:
            # Where the loop was late, those who waited may be in another call already.
            results = await self._make([waiting.item for waiting in batch]) if batch else []
        except Exception as fault:
            _fail(batch, fault)
        else:
            for waiting, result in zip(batch, results, strict=True):
                # Its caller may have lost patience.
                if not waiting.result.done():
                    waiting.result.set_result(result)
        finally:
            self.end(turn)


def _fail(batch: Iterable[_Waiting[Item, Result]], cause: Exception) -> None:
    for waiting in batch:
        # One each: an exception that is raised in several places gathers the tracebacks of all.
        error = ServiceError(cause.kind, cause.message) if isinstance(cause, ServiceError) else errors.internal()
        error.__cause__ = cause
        if not waiting.result.done():
            waiting.result.set_exception(error)

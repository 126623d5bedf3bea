"""How long what nobody reads is still taken: in all, and while none of it comes."""

import asyncio
from collections.abc import Callable

from quarterdeck.core.settings import HttpSettings


class Lingering:
    def __init__(self, settings: HttpSettings, give_up: Callable[[], None]) -> None:
        self._settings = settings
        self._give_up = give_up
        self._loop = asyncio.get_running_loop()
        self._last = self._loop.time()
        self._end_at = self._last + settings.linger_seconds
        self._timer = self._loop.call_at(self._deadline, self._look)

    @property
    def _deadline(self) -> float:
        return min(self._end_at, self._last + self._settings.linger_stall_seconds)

    def note_progress(self) -> None:
        self._last = self._loop.time()

    def end(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        if self._loop.time() >= self._deadline:
            self._give_up()
        else:
            self._timer = self._loop.call_at(self._deadline, self._look)

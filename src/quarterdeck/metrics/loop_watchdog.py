"""Reports an event loop that one callback holds up, with the stack of its thread: decision 0087.

Time counts only while this process could run: a busy machine, SIGSTOP and the pause of a virtual machine are no fault
of a callback. That needs figures of Linux; on other systems nothing is watched.
"""

import asyncio
import os
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from msgspec import Struct

from quarterdeck.core.logging import fields, log
from quarterdeck.metrics import recorder

# Of the limit. A callback is noticed up to one step late: what lasts a quarter longer than the limit is never missed.
_STEPS = 4
_FRAMES = 25
_NANOSECONDS = 1e9
# Frames with their lines, the innermost first.
_Stack = list[tuple[FrameType, int]]


@contextmanager
def watched_loop(limit_seconds: float) -> Iterator[None]:
    """Watches the running event loop. 0: does not."""
    if limit_seconds == 0 or not os.path.exists("/proc/thread-self/schedstat"):
        yield
        return
    watchdog = _Watchdog(asyncio.get_running_loop(), limit_seconds)
    thread = threading.Thread(target=watchdog.run, name="loop watchdog", daemon=True)
    thread.start()
    try:
        yield
    finally:
        watchdog.stopped.set()
        thread.join()


class _Reading(Struct, frozen=True):
    """Clocks, in seconds: processor time of the process and of the loop's thread, and for how long the loop's thread
    and this one were ready to run while others had the processors."""

    now: float
    process: float
    loop: float
    loop_queued: float
    own_queued: float

    def held_since(self, before: "_Reading", step: float) -> float:
        """How much of this step the loop's thread could have run. A step that took longer than it should counts in full
        only if the process used the processor meanwhile: otherwise it was stopped."""
        queued = max(self.loop_queued - before.loop_queued, self.own_queued - before.own_queued)
        return min(self.now - before.now - queued, step + self.process - before.process)


class _Watchdog:
    """Made in the thread of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limit_seconds: float) -> None:
        self.stopped = threading.Event()
        self._loop = loop
        self._limit_seconds = limit_seconds
        self._thread = threading.get_ident()
        self._native_id = threading.get_native_id()
        # How many frames lie below a callback. The loop says it with each answer.
        self._depth = sys.maxsize
        self._has_answered = True
        self._callback: FrameType | None = None
        self._kind: str | None = None
        self._held_seconds = self._processor_seconds = 0.0

    def run(self) -> None:
        step = self._limit_seconds / _STEPS
        own_id = threading.get_native_id()
        # The loop is closed, or its thread has ended.
        with suppress(RuntimeError, KeyError, FileNotFoundError):
            self._ask()
            before = self._reading(own_id)
            while not self.stopped.wait(step):
                # First: reading a file gives the interpreter lock back.
                stack = list(traceback.walk_stack(sys._current_frames()[self._thread]))
                after = self._reading(own_id)
                self._look(stack, after.held_since(before, step), after.loop - before.loop)
                before = after

    def _reading(self, own_id: int) -> _Reading:
        return _Reading(time.monotonic(), time.process_time(), *_schedule(self._native_id), _schedule(own_id)[1])

    def _look(self, stack: _Stack, held: float, processor: float) -> None:
        callback = stack[-1 - self._depth][0] if len(stack) > self._depth else None
        if callback is not None and callback is self._callback and not self._has_answered:
            # The answer waits behind this callback, and a task takes one step before it. So it is still the same step.
            self._held_seconds += held
            self._processor_seconds += processor
            if self._held_seconds >= self._limit_seconds and self._kind is None:
                self._report(stack, "processor" if self._processor_seconds > self._held_seconds / 2 else "waiting")
            return
        self._end()
        self._callback = callback
        if callback is not None or self._depth == sys.maxsize:
            self._ask()
        if held >= self._limit_seconds + self._limit_seconds / _STEPS:
            # Even this thread could not run: a call into C kept the interpreter lock, in this or another thread.
            self._held_seconds, self._processor_seconds = held, processor
            self._report(stack, "interpreter lock")
            self._end()

    def _report(self, stack: _Stack, kind: str) -> None:
        self._kind = kind
        # Without values of variables, which may be secret.
        places = [f"{frame.f_code.co_filename}:{line} {frame.f_code.co_qualname}" for frame, line in stack[:_FRAMES]]
        log.warning("event loop blocked", extra=fields(seconds=round(self._held_seconds, 3), kind=kind, stack=places))

    def _end(self) -> None:
        if self._kind is not None:
            recorder.loop_blocked(self._kind, self._held_seconds)
        self._kind = None
        self._held_seconds = self._processor_seconds = 0.0

    def _ask(self) -> None:
        if self._has_answered:
            self._has_answered = False
            self._loop.call_soon_threadsafe(self._answer)

    def _answer(self) -> None:
        """In the thread of the loop."""
        self._depth = len(list(traceback.walk_stack(sys._getframe()))) - 1
        self._has_answered = True


def _schedule(native_id: int) -> tuple[float, float]:
    """Seconds that a thread ran, and those that it was ready to run and waited for a processor."""
    with open(f"/proc/self/task/{native_id}/schedstat", "rb") as file:
        ran, queued, _ = file.read().split()
    return int(ran) / _NANOSECONDS, int(queued) / _NANOSECONDS

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

from quarterdeck.core import metrics
from quarterdeck.core.logging import fields, log

# The limit is divided into so many steps. A callback is noticed up to one step late: what lasts a quarter longer than
# the limit is never missed.
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
    and this one were ready to run while others had the processors. Beats: how often the loop went round."""

    beats: int
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
        self._step_seconds = limit_seconds / _STEPS
        self._thread = threading.get_ident()
        self._native_id = threading.get_native_id()
        # How many frames lie below a callback. Each beat says it.
        self._depth = sys.maxsize
        self._beats = 0
        self._callback: FrameType | None = None
        self._kind: str | None = None
        self._held_seconds = self._processor_seconds = 0.0
        self._beat()

    def run(self) -> None:
        own_id = threading.get_native_id()
        # The thread of the loop has ended.
        with suppress(KeyError, FileNotFoundError):
            before = self._reading(own_id)
            while not self.stopped.wait(self._step_seconds):
                # First: reading a file gives the interpreter lock back.
                stack = list(traceback.walk_stack(sys._current_frames()[self._thread]))
                after = self._reading(own_id)
                self._look(stack, before, after)
                before = after

    def _reading(self, own_id: int) -> _Reading:
        beats, now, process = self._beats, time.monotonic(), time.process_time()
        return _Reading(beats, now, process, *_schedule(self._native_id), _schedule(own_id)[1])

    def _look(self, stack: _Stack, before: _Reading, after: _Reading) -> None:
        callback = stack[-1 - self._depth][0] if len(stack) > self._depth else None
        held, processor = after.held_since(before, self._step_seconds), after.loop - before.loop
        # A beat is due once in a step, and a task takes one step of its own between two beats at most. So without a
        # beat, the same frame means the same callback.
        if callback is not None and callback is self._callback and after.beats == before.beats:
            self._held_seconds += held
            self._processor_seconds += processor
            if self._kind is None:
                self._check(stack)
            return
        self._end()
        self._callback = callback
        if held >= self._limit_seconds + self._step_seconds and after.beats - before.beats <= 1:
            # Even this thread could not run: a call into C kept the interpreter lock, in this or another thread.
            self._held_seconds = held
            self._report(stack, "interpreter lock")
            self._end()

    def _check(self, stack: _Stack) -> None:
        if self._processor_seconds >= self._limit_seconds:
            self._report(stack, "processor")
        # The time in which the thread is ready to run is told only when it runs again.
        elif self._held_seconds >= self._limit_seconds and not _is_ready(self._native_id):
            self._report(stack, "processor" if self._processor_seconds > self._held_seconds / 2 else "waiting")

    def _report(self, stack: _Stack, kind: str) -> None:
        self._kind = kind
        # Without values of variables, which may be secret.
        lines = [f"{frame.f_code.co_filename}:{line} {frame.f_code.co_qualname}" for frame, line in stack[:_FRAMES]]
        log.warning("event loop blocked", extra=fields(seconds=round(self._held_seconds, 3), kind=kind, stack=lines))

    def _end(self) -> None:
        if self._kind is not None:
            metrics.loop_blocked(self._kind, self._held_seconds)
        self._kind = None
        self._held_seconds = self._processor_seconds = 0.0

    def _beat(self) -> None:
        """In the thread of the loop."""
        if not self.stopped.is_set():
            if self._beats:
                self._depth = len(list(traceback.walk_stack(sys._getframe()))) - 1
            self._beats += 1
            self._loop.call_later(self._step_seconds, self._beat)


def _schedule(native_id: int) -> tuple[float, float]:
    """Seconds that a thread ran, and those that it was ready to run and waited for a processor."""
    with open(f"/proc/self/task/{native_id}/schedstat", "rb") as file:
        ran, queued, _ = file.read().split()
    return int(ran) / _NANOSECONDS, int(queued) / _NANOSECONDS


def _is_ready(native_id: int) -> bool:
    with open(f"/proc/self/task/{native_id}/stat", "rb") as file:
        return file.read().rpartition(b") ")[2].startswith(b"R")

"""Hearing of the end in time. The server stops after the last answer, and a stream has no end of its own: without this
it would hold the worker until it is killed."""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def told_of_stop(tell: Callable[[], None]) -> Iterator[None]:
    """Calls `tell` in the running loop at the first sign. The handlers that are there go on as they were: loops learn
    of signals by a descriptor that Python writes to, whatever handler is set."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    def heard(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(tell)
        earlier = before[signal.Signals(number)]
        if callable(earlier):
            earlier(number, frame)

    for number in _SIGNALS:
        signal.signal(number, heard)
        # As loops set it: system calls of other threads are not disturbed.
        signal.siginterrupt(number, False)
    try:
        yield
    finally:
        for number, earlier in before.items():
            if signal.getsignal(number) is heard:
                signal.signal(number, earlier)

"""Learning of a shutdown early. A server waits for open responses before it ends the lifespan, and an event stream has
no end of its own: it must be ended by the signal itself."""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def on_shutdown_signal(callback: Callable[[], None]) -> Iterator[None]:
    """Calls `callback` in the running loop when SIGTERM or SIGINT arrives. The server's own handling is unaffected:
    a handler that it set is called too, and event loops are woken by Python's wake-up descriptor in any case."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    def handle(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(callback)
        earlier = before[signal.Signals(number)]
        if callable(earlier):
            earlier(number, frame)

    for number in _SIGNALS:
        signal.signal(number, handle)
        # As event loops set it: system calls of other threads are not interrupted.
        signal.siginterrupt(number, False)
    try:
        yield
    finally:
        for number, earlier in before.items():
            if signal.getsignal(number) is handle:
                signal.signal(number, earlier)

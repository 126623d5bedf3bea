"""Signal handling of the supervisor."""

import select
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Signals:
    """SIGTERM, SIGINT and SIGHUP. The first signal interrupts the start or begins the shutdown. The second ends the
    wait for children."""

    def __init__(self) -> None:
        self.received = 0
        self._starting = True
        self._wake_reader, self._wake_writer = socket.socketpair()

    @contextmanager
    def caught(self) -> Iterator[None]:
        for end in (self._wake_reader, self._wake_writer):
            end.setblocking(False)
        before = {
            order: signal.signal(order, self._on_order) for order in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        }
        # Python writes to the wake-up socket only for signals that have a handler.
        before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
        wakeup_before = signal.set_wakeup_fd(self._wake_writer.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(wakeup_before)
            for order, handler in before.items():
                signal.signal(order, handler)
            self._wake_reader.close()
            self._wake_writer.close()

    def _on_order(self, order: int, frame: FrameType | None) -> None:
        self.received += 1
        if self._starting:
            self._starting = False
            raise KeyboardInterrupt

    def started(self) -> None:
        self._starting = False

    def wait(self, seconds: float | None) -> None:
        """Wait for a signal, which includes the end of a child."""
        select.select([self._wake_reader], [], [], seconds)
        try:
            while self._wake_reader.recv(4096):
                pass
        except BlockingIOError:
            return

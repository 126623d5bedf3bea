"""`qd` in a pseudo-terminal, with an emulator that keeps what a user would see."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyte

from tests.cli.command import QD, environment

# Far longer than needed, for a busy machine.
TIMEOUT_SECONDS = 60.0


class _Emulated(pyte.HistoryScreen):
    """Replies to queries of the program, such as the position of the cursor."""

    reply: Callable[[str], None]

    def write_process_input(self, data: str) -> None:
        self.reply(data)


class Terminal:
    def __init__(self, process: "subprocess.Popen[bytes]", master: int, columns: int, rows: int) -> None:
        self.process = process
        # Every byte that was written.
        self.raw = b""
        self._master = master
        self._screen = _Emulated(columns, rows, history=5000, ratio=0.1)
        self._screen.reply = lambda data: self._write(data.encode())
        self._stream = pyte.ByteStream(self._screen)

    def _write(self, data: bytes) -> None:
        os.write(self._master, data)

    def type(self, text: str) -> None:
        self._write(text.encode())

    def enter(self, text: str) -> None:
        self.type(text + "\r")

    def interrupt(self) -> None:
        self.type("\x03")

    def resize(self, columns: int, rows: int) -> None:
        self._screen.resize(rows, columns)
        _set_size(self._master, columns, rows)
        self.process.send_signal(signal.SIGWINCH)

    def text(self) -> str:
        """All lines, including those that have scrolled away."""
        self._read(0)
        gone = ["".join(line[at].data for at in range(self._screen.columns)) for line in self._screen.history.top]
        return "\n".join(line.rstrip() for line in [*gone, *self._screen.display])

    def wait(self, *words: str) -> str:
        """Waits until the screen shows all of these texts. Returns the screen."""
        return self.wait_for(lambda text: all(one in text for one in words), f"{words}")

    def wait_for(self, look: Callable[[str], bool], what: str) -> str:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not look(text := self.text()):
            assert time.monotonic() < deadline, f"not seen: {what}\n{text}"
            self._read(0.05)
        return text

    def wait_once(self, *words: str) -> str:
        """Waits until each of these texts is shown once and no run is active. While the screen is being redrawn, a text
        may be missing or appear twice."""
        return self.wait_for(
            lambda text: "● Running" not in text and all(text.count(one) == 1 for one in words), f"{words}, each once"
        )

    def ended(self) -> int:
        """Waits for the end of the process and reads the rest of its output. Returns the exit code."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"still running:\n{self.text()}"
            self._read(0.05)
        self._read(0)
        return self.process.returncode

    def _read(self, seconds: float) -> None:
        while select.select([self._master], [], [], seconds)[0]:
            try:
                data = os.read(self._master, 65536)
            except OSError:
                # Linux reports a closed terminal this way.
                return
            if not data:
                return
            self.raw += data
            self._stream.feed(data)
            seconds = 0


def _set_size(descriptor: int, columns: int, rows: int) -> None:
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


@contextmanager
def terminal(
    *arguments: str,
    variables: dict[str, str],
    command: Sequence[str] = QD,
    cwd: Path | None = None,
    columns: int = 80,
    rows: int = 30,
) -> Iterator[Terminal]:
    master, slave = pty.openpty()
    try:
        _set_size(slave, columns, rows)
        process = subprocess.Popen(
            [*command, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment() | variables | {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"},
            cwd=cwd,
            start_new_session=True,
        )
    finally:
        os.close(slave)
    try:
        yield Terminal(process, master, columns, rows)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(master)

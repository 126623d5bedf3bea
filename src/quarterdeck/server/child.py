"""One supervised process: started, watched, started again with growing pauses, stopped."""

import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress

logger = logging.getLogger(__name__)

# The first restart is quick, since most deaths are accidents; a fault that stays must not burn the machine.
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 10.0
# Who lived this long was up: its end is a new accident and not the next failure to start.
SETTLED_SECONDS = 10.0
FAILED_STARTS_TO_REPORT = 5


class Child:
    def __init__(
        self,
        name: str,
        spawn: Callable[[], subprocess.Popen[str]],
        last_words: Callable[[subprocess.Popen[str]], str] = lambda process: "",
    ) -> None:
        """`spawn` gives the process a session of its own: a Ctrl-C in the terminal is the supervisor's alone.
        `last_words` reads what an ended process said, for the log."""
        self.name = name
        self.process: subprocess.Popen[str] | None = None
        self._spawn = spawn
        self._last_words = last_words
        self._started = 0.0
        self._due = 0.0
        self._failed_starts = 0

    def start(self) -> None:
        self._started = time.monotonic()
        self.process = self._spawn()

    def tend(self) -> float | None:
        """Start it if it is down and its pause is over; otherwise the seconds until then. None: it runs."""
        if self.process is not None:
            if self.process.poll() is None:
                return None
            self._note_end(self.process)
            self.process = None
        wait_seconds = self._due - time.monotonic()
        if wait_seconds > 0:
            return wait_seconds
        self.start()
        return None

    def _note_end(self, process: subprocess.Popen[str]) -> None:
        now = time.monotonic()
        self._failed_starts = 1 if now - self._started > SETTLED_SECONDS else self._failed_starts + 1
        pause_seconds = min(FIRST_PAUSE_SECONDS * 2 ** (self._failed_starts - 1), LONGEST_PAUSE_SECONDS)
        self._due = now + pause_seconds
        logger.warning(
            "%s ended with code %s; it starts again in %.1f s. %s",
            self.name,
            process.returncode,
            pause_seconds,
            self._last_words(process),
        )
        if self._failed_starts == FAILED_STARTS_TO_REPORT:
            logger.error(
                "%s has ended %d times within %d s of its start and needs attention; trying on every %d s",
                self.name,
                self._failed_starts,
                SETTLED_SECONDS,
                LONGEST_PAUSE_SECONDS,
            )

    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def terminate(self) -> None:
        if self.process is not None:
            self.process.terminate()

    def kill(self) -> None:
        """The process and all that it forked."""
        if self.process is not None and self.process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

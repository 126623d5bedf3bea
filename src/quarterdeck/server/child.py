"""One supervised process: started, watched, restarted with increasing delays, stopped."""

import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress

logger = logging.getLogger(__name__)

# The first restart is quick because most crashes are single events. A crash that repeats must not use up the processor.
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 10.0
# A process that ran this long had started: its end does not count as another failed start.
SETTLED_SECONDS = 10.0
FAILED_STARTS_TO_REPORT = 5


class Child:
    def __init__(
        self,
        name: str,
        spawn: Callable[[], subprocess.Popen[str]],
        read_error: Callable[[subprocess.Popen[str]], str] = lambda process: "",
    ) -> None:
        """`spawn` starts the process in a session of its own, so that Ctrl-C reaches only the supervisor. `read_error`
        returns the last output of an ended process, for the log."""
        self.name = name
        self.process: subprocess.Popen[str] | None = None
        self._spawn = spawn
        self._read_error = read_error
        self._started = 0.0
        self._due = 0.0
        self._failed_starts = 0

    def start(self) -> None:
        self._started = time.monotonic()
        self.process = self._spawn()

    def tend(self) -> float | None:
        """Restart the process if it has ended and the delay is over. Returns the seconds until then; None: it runs."""
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
            self._read_error(process),
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
        """Kill the process and everything in its process group."""
        if self.process is not None and self.process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

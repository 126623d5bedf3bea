"""A person who signs in on the command line."""

import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cli.command import QD
from tests.cli.people import WAIT_SECONDS, Nearby, Person
from tests.people import Person as Member
from tests.people import new_device
from tests.world import Server


class Login:
    """`qd login`, which waits for the approval of its code."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        # What was printed before the wait.
        self.shown = ""

    def code(self) -> str:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.shown += line
            if found := re.search(r"#/devices/approve\?code=([A-Z]{4}-[A-Z]{4})$", line):
                return found[1]
        raise AssertionError(f"no code: {self.shown}")

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def ended(self) -> tuple[int, str, str]:
        """The exit code, and what was printed to stdout and stderr since the wait began."""
        out, err = self.process.communicate(timeout=WAIT_SECONDS)
        return self.process.returncode, out, err.strip()


@contextmanager
def logging_in(person: Person, *arguments: str) -> Iterator[Login]:
    process = subprocess.Popen(
        [*QD, "login", *arguments],
        env=person.environ,
        cwd=person.home,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield Login(process)
    finally:
        process.kill()
        process.communicate()


async def signed_in(home: Path, server: Server, member: Member) -> Nearby:
    """With a saved login, as `qd login` leaves it."""
    person = Nearby(home)
    person.done("login", "--key", "--url", server.url, given=await new_device(member))
    return person

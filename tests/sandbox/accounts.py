"""Runs the adapter as root and as an ordinary user, each with a user of the host that nothing else uses."""

import asyncio
import concurrent.futures.thread  # noqa: F401 (cannot be imported later: see Child)
import ctypes
import fcntl
import os
import pickle
import secrets
import shutil
import tempfile
import traceback
import warnings
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from msgspec import Struct

from quarterdeck.core.settings import SandboxSettings
from quarterdeck.sandbox import limits
from quarterdeck.sandbox.adapter import Command, CommandOutcome, Sandbox
from quarterdeck.sandbox.bubblewrap import Bubblewrap, Program

ACCOUNTS = ("root", "ordinary")
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
# The data folder of the account that is used at the moment.
_data_dir = Path("/nonexistent")


class Ran(Struct):
    outcome: CommandOutcome
    output: str
    # Size of the output file.
    size: int


class Account(Struct):
    """A worker's account, and the user that its commands have on the host."""

    name: str
    user_id: int
    # Every user can enter it.
    folder: Path
    # Children of the test process that are not ours, such as servers of fixtures.
    others: set[int]

    def settings(self, **changed: Any) -> SandboxSettings:
        return SandboxSettings(**{"user_id": self.user_id, **changed})

    def new_folder(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir()
        os.chown(folder, self.user_id, self.user_id)
        return folder

    def run(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        return self.fork(work).result()

    def fork(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> "Child":
        return Child(work, self.user_id if self.name == "ordinary" and os.geteuid() == 0 else None)

    def processes(self) -> list[str]:
        """Of sandboxes and of workers. Also those that have ended and for which nobody has waited.

        Not all processes of the user: other tests run as the same one, if that is not root."""
        found = []
        for process in self.descendants():
            with suppress(psutil.NoSuchProcess):
                found.append(f"{process.pid} {process.name()} {process.status()}")
        return found

    def descendants(self) -> list[psutil.Process]:
        own = [child for child in psutil.Process().children() if child.pid not in self.others]
        return own + [below for child in own for below in _children(child)]


def _children(process: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return process.children(recursive=True)
    return []


class Child:
    """A forked process with another user. Its modules are imported already: the user may not be able to read them."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, Any]], user_id: int | None) -> None:
        self._reader, writer = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            self._work(work, user_id, writer)
        os.close(writer)

    def _work(self, work: Callable[[], Coroutine[Any, Any, Any]], user_id: int | None, writer: int) -> None:
        try:
            if os.geteuid() == 0:
                # As of an account with groups: commands must not have them.
                os.setgroups([4])
            if user_id is not None:
                os.setgroups([])
                os.setgid(user_id)
                os.setuid(user_id)
                # As a process that was started by this user: otherwise /proc/self belongs to root.
                ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
            result: tuple[Any, str | None] = asyncio.run(work()), None
        except BaseException:
            result = None, traceback.format_exc()
        with os.fdopen(writer, "wb") as pipe:
            pickle.dump(result, pipe)
        os._exit(0)

    def result(self) -> Any:
        with os.fdopen(self._reader, "rb") as pipe:
            data = pipe.read()
        os.waitpid(self.pid, 0)
        result, fault = pickle.loads(data)
        assert fault is None, fault
        return result

    def kill(self, number: int) -> None:
        os.kill(self.pid, number)
        os.waitpid(self.pid, 0)
        os.close(self._reader)


def new_user_id() -> int:
    """The first of as many users as a worker has by default, which nothing else uses. Only root can choose."""
    return os.geteuid() or 1_000_000 + SandboxSettings().users * secrets.randbelow(1_000_000)


@contextmanager
def account(name: str) -> Iterator[Account]:
    if name == "root" and os.geteuid() != 0:
        pytest.skip("needs root")
    if name == "ordinary" and os.geteuid() == 0 and Program(is_started_by_others=True).descriptors:
        pytest.skip("another user cannot enter the folder of bwrap")
    user_id = new_user_id()
    folder = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="quarterdeck-test-"))
    folder.chmod(0o755)
    others = {child.pid for child in psutil.Process().children()}
    # Other tests kill workers at the same time, whose groups are not ours.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "_PREFIX", f"quarterdeck-test-{user_id}-{secrets.token_hex(4)}-")
        patch.setattr("tests.sandbox.accounts._data_dir", folder / "data")
        _adopt_orphans(True)
        try:
            yield Account(name, user_id, folder, others)
        finally:
            _adopt_orphans(False)
            _reap_orphans(others)
            shutil.rmtree(folder)


def _adopt_orphans(is_adopting: bool) -> None:
    """Processes of a worker that was killed become children of this process."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(is_adopting), 0, 0, 0)


def _reap_orphans(others: set[int]) -> None:
    for child in psutil.Process().children():
        if child.pid not in others:
            with suppress(ChildProcessError):
                os.waitpid(child.pid, os.WNOHANG)


async def bubblewrap(settings: SandboxSettings, data_dir: Path | None = None) -> Bubblewrap:
    sandbox = Bubblewrap(settings, data_dir or _data_dir)
    await sandbox.check()
    return sandbox


async def run(sandbox: Sandbox, script: str, folder: Path, seconds: float = 60.0, **skills: Path) -> Ran:
    with tempfile.TemporaryFile() as output:
        command = Command(
            arguments=["/bin/bash", "-c", script],
            folder=folder,
            user_id=None if sandbox.users is None else sandbox.users.first,
            skills=skills,
            output=output,
            seconds=seconds,
        )
        outcome = await sandbox.run(command)
        size = output.seek(0, os.SEEK_END)
        output.seek(max(0, size - 100_000))
        return Ran(outcome, output.read().decode(errors="replace"), size)


def left_cgroups() -> list[str]:
    """Whose owner has ended."""
    found = []
    for parent in _cgroup_parents():
        for folder in parent.glob(f"{limits._PREFIX}*"):
            with suppress(OSError):
                descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    found.append(str(folder))
                finally:
                    os.close(descriptor)
    return found


def _cgroup_parents() -> list[Path]:
    # Unlike rglob, it passes over folders that others remove meanwhile.
    walked = os.walk("/sys/fs/cgroup")
    return [Path(parent) for parent, names, _ in walked if any(name.startswith(limits._PREFIX) for name in names)]

"""Commands that take too much are stopped, and nothing of them is left."""

import asyncio
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from quarterdeck.core.settings import SandboxSettings
from quarterdeck.sandbox.bubblewrap import Bubblewrap, BwrapProcess
from quarterdeck.sandbox.limits import find_parents
from tests.sandbox.accounts import ACCOUNTS, Account, Ran, account, bubblewrap, left_cgroups, run

_MIB = 1024 * 1024
_FILE_BYTES = 8 * _MIB
_FILES = {"all_files_bytes": 24 * _MIB, "files": 500, "file_bytes": _FILE_BYTES}
_BOUNDS = {"processes": 60, "memory_bytes": 192 * _MIB, "temporary_bytes": 4 * _MIB}
# Name → script, and the reason for which it is stopped. None: it ends by itself.
_COMMANDS: dict[str, tuple[str, str | None]] = {
    "fork bomb": ("bomb() { bomb | bomb & }; bomb; sleep 1000", "more than 60 processes"),
    # Each of them is below the bound.
    "memory": (
        "for i in 1 2 3; do python3 -c 'x = bytearray(100_000_000); import time; time.sleep(1000)' & done; wait",
        "more than 192 MiB of memory",
    ),
    "output": ("yes; sleep 1000", "output exceeded 8 MiB"),
    "many bytes": ("for i in 1 2 3 4 5 6; do head -c 7M /dev/zero > $i; done; sleep 1000", "grew beyond 24 MiB"),
    "many files": ("touch $(seq 600); sleep 1000", "more than 500 files"),
    "deep folders": ("for i in $(seq 150); do mkdir d; cd d; done; sleep 1000", "100 levels"),
    "deleted files": (
        'python3 -c \'import tempfile as t; f = [t.TemporaryFile(dir=".") for _ in range(6)]\n'
        "for x in f: x.write(bytes(7 << 20)); x.flush()\nimport time; time.sleep(1000)'",
        "grew beyond 24 MiB",
    ),
    "large file": ("head -c 10G /dev/zero > big; stat -c %s big; truncate -s 10G sparse || echo refused", None),
    "full /tmp": (
        "head -c 1G /dev/zero > /tmp/a; head -c 1G /dev/zero > /dev/shm/a; du -cm /tmp /dev/shm | tail -1",
        None,
    ),
    "background": ("trap '' TERM HUP; (setsid sleep 1000 &); nohup sleep 1000 & disown -a; echo ended", None),
    "time": ("trap '' TERM INT HUP; while true; do sleep 1000; done", "more than 3 s"),
}


async def _run_all(worker: Account, folders: dict[str, Path], neighbour: Path) -> dict[str, Ran]:
    sandbox = await bubblewrap(worker.settings(**_BOUNDS, **_FILES))
    names = list(_COMMANDS)
    runs = [
        asyncio.create_task(run(sandbox, _COMMANDS[name][0], folders[name], 3.0 if name == "time" else 120.0))
        for name in names
    ]
    # While they run, others do as ever.
    while not all(task.done() for task in runs):
        assert (await run(sandbox, "echo fine", neighbour)).output == "fine\n"
    return dict(zip(names, await asyncio.gather(*runs), strict=True))


@pytest.mark.long
@pytest.mark.parametrize("name", ACCOUNTS)
def test_excesses_are_stopped_and_leave_nothing(name: str) -> None:
    with account(name) as worker:
        folders = {command: worker.new_folder(command.replace("/", "")) for command in _COMMANDS}
        neighbour = worker.new_folder("neighbour")
        ran = worker.run(lambda: _run_all(worker, folders, neighbour))
        for command, (_, reason) in _COMMANDS.items():
            stopped = ran[command].outcome.stopped
            assert reason in stopped if reason and stopped else reason == stopped, (command, ran[command])
        assert {str(8 * _MIB), "refused"} < set(ran["large file"].output.splitlines())
        assert ran["full /tmp"].output.endswith("8\ttotal\n"), ran["full /tmp"]
        assert ran["background"] == Ran(ran["background"].outcome, "ended\n", 6)
        assert ran["output"].size <= _FILE_BYTES
        assert worker.processes() == []
        assert left_cgroups() == []


@pytest.mark.parametrize("name", ACCOUNTS)
def test_cancelled_command_has_ended(name: str) -> None:
    with account(name) as worker:
        folder = worker.new_folder("own")

        async def work() -> None:
            sandbox = await bubblewrap(worker.settings())
            script = "trap '' TERM; setsid sleep 1000 & touch started; sleep 1000"
            task = asyncio.create_task(run(sandbox, script, folder))
            while not (folder / "started").exists():
                await asyncio.sleep(0.02)
            task.cancel()
            # A second one, while its processes are ended.
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not [line for line in worker.processes() if "sleep" in line or "bwrap" in line]

        worker.run(work)
        assert worker.processes() == []


@pytest.mark.parametrize("name", ACCOUNTS)
def test_killed_worker_takes_its_commands_along(name: str) -> None:
    with account(name) as worker:
        folder = worker.new_folder("own")

        async def work() -> None:
            await run(
                await bubblewrap(worker.settings()), "setsid sleep 1000 & sleep 1000 & touch started; wait", folder
            )

        child = worker.fork(work)
        _wait_for(lambda: (folder / "started").exists())
        assert any("sleep" in process for process in worker.processes())
        child.kill(signal.SIGKILL)
        # Nobody waits for its children but process 1 of the host, whenever that does.
        _wait_for(lambda: all("zombie" in process for process in worker.processes()))
        # The next start removes what it could not remove itself.
        find_parents(SandboxSettings())
        assert left_cgroups() == []


@pytest.mark.parametrize("name", ACCOUNTS)
def test_killed_worker_takes_a_sandbox_along_that_is_being_set_up(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The outer process of bwrap waits for a reader of its status, and the inner one for the outer one."""
    with account(name) as worker:
        folder = worker.new_folder("own")

        async def work() -> None:
            sandbox = await bubblewrap(worker.settings())
            monkeypatch.setattr(subprocess, "Popen", _start_with_full_status)
            monkeypatch.setattr(BwrapProcess, "started", lambda _: asyncio.Event().wait())
            await run(sandbox, "true", folder)

        child = worker.fork(work)
        _wait_for(lambda: sum(" bwrap " in process for process in worker.processes()) == 2)
        # The outer one has begun to follow the worker.
        time.sleep(0.2)
        child.kill(signal.SIGKILL)
        _wait_for(lambda: all("zombie" in process for process in worker.processes()))


def _start_with_full_status(
    arguments: Sequence[str], *, start: Any = subprocess.Popen, **options: Any
) -> subprocess.Popen[bytes]:
    if "--json-status-fd" in arguments:
        status = int(arguments[arguments.index("--json-status-fd") + 1])
        os.set_blocking(status, False)
        with suppress(BlockingIOError):
            while True:
                os.write(status, bytes(4096))
        os.set_blocking(status, True)
    started: subprocess.Popen[bytes] = start(arguments, **options)
    return started


@pytest.mark.parametrize("name", ACCOUNTS)
def test_a_command_that_was_not_released_does_not_begin(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """bwrap goes on at the end of the pipe, as after the death of the worker."""
    with account(name) as worker:
        folder = worker.new_folder("own")

        async def work() -> None:
            sandbox = await bubblewrap(worker.settings())

            def end(process: BwrapProcess) -> None:
                os.close(process._blocker)
                process._blocker = os.dup(0)

            monkeypatch.setattr(BwrapProcess, "release", end)
            assert (await run(sandbox, "touch begun", folder)).outcome.exit_code != 0

        worker.run(work)
        assert list(folder.iterdir()) == [folder / "skills"]
        assert worker.processes() == []


@pytest.mark.parametrize("name", ACCOUNTS)
def test_commands_cancelled_while_they_are_set_up_leave_nothing(name: str) -> None:
    with account(name) as worker:
        folder = worker.new_folder("own")

        async def work() -> None:
            sandbox = await bubblewrap(worker.settings())
            for milliseconds in range(40):
                task = asyncio.create_task(run(sandbox, "sleep 1000", folder))
                await asyncio.sleep(milliseconds / 1000)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert not [line for line in worker.processes() if "sleep" in line or "bwrap" in line]

        worker.run(work)
        assert worker.processes() == []


# Ways to take space without writing: fallocate with and without FALLOC_FL_KEEP_SIZE, FALLOC_FL_ZERO_RANGE, and
# FS_IOC_RESVSP. Prints what the files and the output take on the disk. Ends before they could be measured.
_RESERVE = """
import ctypes, fcntl, os, struct
libc = ctypes.CDLL(None)
files = [os.open(name, os.O_RDWR | os.O_CREAT) for name in "abcd"]
size = 1 << 30
for file, mode in zip(files, (0, 1, 0x11)):
    for _ in range(2):
        libc.fallocate(file, mode, ctypes.c_long(0), ctypes.c_long(size if mode & 1 else 8 << 20))
        file = 1
try:
    fcntl.ioctl(files[3], 0x40305828, struct.pack("hhxxxxqqii16x", 0, 0, 0, size, 0, 0))
except OSError:
    pass
print(sum(os.fstat(file).st_blocks * 512 for file in (1, *files)))
os.posix_fallocate(files[0], 0, 1 << 20)
print(os.fstat(files[0]).st_size)
"""


@pytest.mark.parametrize("name", ACCOUNTS)
def test_space_is_only_taken_by_writing(name: str) -> None:
    async def work() -> Ran:
        sandbox = await bubblewrap(worker.settings(**_FILES))
        return await run(sandbox, f"exec python3 -c {shlex.quote(_RESERVE)}", folder)

    with account(name) as worker:
        folder = worker.new_folder("own")
        ran = worker.run(work)
        assert ran.output == f"0\n{1 << 20}\n", ran


async def test_a_full_disk_stops_commands() -> None:
    """Whatever filled it: not all files can be measured."""
    with account("root" if os.geteuid() == 0 else "ordinary") as worker:
        sandbox = await bubblewrap(worker.settings())
        sandbox._settings = msgspec.structs.replace(sandbox._settings, free_bytes=1 << 60)
        ran = await run(sandbox, "sleep 1000", worker.new_folder("own"))
        assert "the disk of the host has less than" in str(ran.outcome.stopped)


def _wait_for(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.02)


async def test_links_to_mount_points_are_replaced() -> None:
    with account("root" if os.geteuid() == 0 else "ordinary") as worker:
        folder = worker.new_folder("own")
        (folder / "skills").symlink_to("../../../../../oldroot/etc")
        skill = worker.new_folder("skill")
        sandbox: Bubblewrap = await bubblewrap(worker.settings())
        assert (await run(sandbox, "ls skills; ls -d skills/one", folder, one=skill)).output == "one\nskills/one\n"
        assert (folder / "skills").is_dir()
        assert not (folder / "skills").is_symlink()

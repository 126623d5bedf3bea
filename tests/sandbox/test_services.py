"""Services: commands that run until their caller ends them, with pipes."""

import asyncio
import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from quarterdeck.sandbox.adapter import ErrorTail, Pipes, Sandbox, Service
from tests.sandbox.accounts import ACCOUNTS, Account, account, bubblewrap, left_cgroups

_MIB = 1024 * 1024
# What is visible, and then every line of stdin. A process stays in the background.
_SCRIPT = """
    sleep 1000 &
    trap '' TERM HUP
    echo "$PWD|$(ls -A)|$GREETING|$HOME|$(id -u)"
    touch file; ls -A; cat "$1/reference.txt"
    (echo > /dev/tcp/127.0.0.1/22) 2>/dev/null && echo connected
    while read -r line; do echo "got $line"; done
    sleep 1000
"""
# Ends by itself: the background process does not keep the pipe open.
_FLOOD = "sleep 1000 & yes | head -c 300K >&2; stat -Lc %F /dev/fd/2; echo why >&2; echo last"


def service(script: str, errors: Any, readable: Path | None = None) -> Service:
    return Service(
        workspace_id=uuid4(),
        arguments=["/bin/bash", "-c", script, "bash", str(readable)],
        environment={"GREETING": "hello there", "HOME": "/files"},
        network=False,
        readable=[readable] if readable else [],
        errors=errors,
        buffer_bytes=_MIB,
    )


async def lines(pipes: Pipes, number: int) -> list[str]:
    return [(await pipes.stdout.readline()).decode().rstrip("\n") for _ in range(number)]


@pytest.mark.parametrize("name", ACCOUNTS)
def test_a_service_has_pipes_and_a_folder_of_its_own_and_ends_with_its_block(name: str) -> None:
    async def work(worker: Account, readable: Path) -> None:
        sandbox = await bubblewrap(worker.settings())
        for _ in range(2):
            errors = ErrorTail()
            async with sandbox.serve(service(_SCRIPT, errors, readable)) as pipes:
                pipes.stdin.write(b"one\ntwo\n")
                assert await lines(pipes, 5) == [
                    "/files||hello there|/files|1000",
                    "file",
                    "reference",
                    "got one",
                    "got two",
                ]
        errors = ErrorTail()
        async with sandbox.serve(service(_FLOOD, errors)) as pipes:
            # No file, which would take space on the disk of the host.
            assert await pipes.stdout.read() == b"fifo\nlast\n"
        assert errors.last_line() == "why"

    with account(name) as worker:
        readable = worker.new_folder("readable")
        (readable / "reference.txt").write_text("reference\n")
        worker.run(lambda: work(worker, readable))
        assert worker.processes() == []
        assert left_cgroups() == []


def test_a_service_reads_folders_below_the_temporary_folder() -> None:
    """Which the sandbox covers with one of its own."""

    async def work(worker: Account, readable: Path) -> None:
        sandbox = await bubblewrap(worker.settings())
        errors = ErrorTail()
        async with sandbox.serve(service('cat "$1/reference.txt"; ls /tmp', errors, readable)) as pipes:
            assert await pipes.stdout.read() == f"reference\n{readable.name}\n".encode()

    with (
        tempfile.TemporaryDirectory(dir="/tmp") as folder,
        account("root" if os.geteuid() == 0 else "ordinary") as worker,
    ):
        readable = Path(folder)
        readable.chmod(0o755)
        (readable / "reference.txt").write_text("reference\n")
        worker.run(lambda: work(worker, readable))


def test_a_service_does_not_see_private_folders_below_its_readable_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder of the server and its data, unless the operator named a folder in them."""

    async def work(worker: Account, server: Path) -> list[str]:
        sandbox = await bubblewrap(worker.settings(), data_dir=server / "app" / "data")
        named = service('cd "$1"; find -L . -type f | sort', ErrorTail(), worker.folder / "link")
        also = [*named.readable, worker.folder / "link" / "app" / "servers"]
        found = []
        for one in (named, msgspec.structs.replace(named, readable=also)):
            async with sandbox.serve(one) as pipes:
                found.append((await pipes.stdout.read()).decode())
        return found

    with account("root" if os.geteuid() == 0 else "ordinary") as worker:
        server = worker.new_folder("srv")
        for path in ("shown", "app/.env", "app/data/secret", "app/servers/program"):
            (server / path).parent.mkdir(parents=True, exist_ok=True)
            (server / path).write_text("x")
        # What lies behind a link is seen under its name.
        (worker.folder / "link").symlink_to(server)
        monkeypatch.chdir(server / "app")
        assert worker.run(lambda: work(worker, server)) == ["./shown\n", "./app/servers/program\n./shown\n"]


def test_a_service_beyond_its_memory_is_ended() -> None:
    async def work(worker: Account) -> None:
        sandbox = await bubblewrap(worker.settings(memory_bytes=64 * _MIB))
        # Where there are cgroups, the kernel does it.
        sandbox._cgroups = None
        # No file alone exceeds a bound.
        script = "head -c 40M /dev/zero > /tmp/a; head -c 40M /dev/zero > /dev/shm/a; sleep 1000"
        errors = ErrorTail()
        async with sandbox.serve(service(script, errors)) as pipes:
            assert await pipes.stdout.read() == b""
        assert errors.last_line() == "The command was stopped because it used more than 64 MiB of memory."

    with account("root" if os.geteuid() == 0 else "ordinary") as worker:
        worker.run(lambda: work(worker))
        assert worker.processes() == []


@pytest.mark.parametrize("name", ACCOUNTS)
def test_killed_worker_takes_its_services_along(name: str) -> None:
    async def work(worker: Account, started: Path) -> None:
        sandbox = await bubblewrap(worker.settings())
        errors = ErrorTail()
        async with sandbox.serve(service("echo up; setsid sleep 1000 & sleep 1000", errors)) as pipes:
            assert await lines(pipes, 1) == ["up"]
            started.touch()
            await asyncio.Event().wait()

    with account(name) as worker:
        started = worker.new_folder("signs") / "started"
        child = worker.fork(lambda: work(worker, started))
        while not started.exists():
            time.sleep(0.05)
        assert any("sleep" in process for process in worker.processes())
        child.kill(signal.SIGKILL)
        # Nobody waits for its children but process 1 of the host, whenever that does.
        while not all("zombie" in process for process in worker.processes()):
            time.sleep(0.05)


async def test_a_service_that_cannot_start_says_why() -> None:
    with account("root" if os.geteuid() == 0 else "ordinary") as worker:
        sandbox: Sandbox = await bubblewrap(worker.settings())
        errors = ErrorTail()
        broken = Service(
            workspace_id=uuid4(),
            arguments=["/no/such/program"],
            environment={},
            network=False,
            readable=[],
            errors=errors,
            buffer_bytes=_MIB,
        )
        async with sandbox.serve(broken) as pipes:
            assert await pipes.stdout.read() == b""
        assert "No such file" in errors.last_line()

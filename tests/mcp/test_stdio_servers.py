"""stdio servers in the sandbox: real ones, one that records, and hostile ones."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import msgspec
import psutil
import pytest
import pytest_asyncio

from quarterdeck.connections.mcp.model import KEY_META, McpFailure
from quarterdeck.sandbox.adapter import Sandbox
from tests.mcp.reachable import reachable
from tests.mcp.targets import (
    HERE,
    PATIENT,
    call,
    commands_file,
    connections,
    npm_packages,
    npm_server,
    python_server,
    stdio_target,
)
from tests.sandbox.accounts import Account, account, bubblewrap

_RECORDING = {"command": ["/bin/bash", "-c", (HERE / "recording_server.sh").read_text()]}


@pytest.fixture
def worker() -> Iterator[Account]:
    with account("root" if os.geteuid() == 0 else "ordinary") as worker:
        yield worker


@pytest_asyncio.fixture
async def sandbox(worker: Account) -> AsyncIterator[Sandbox]:
    yield await bubblewrap(worker.settings())


@pytest.mark.long
async def test_real_servers(sandbox: Sandbox, worker: Account, tmp_path: Path) -> None:
    packages = reachable(npm_packages(), worker.folder)
    readable = [str(packages)]
    file = commands_file(
        tmp_path,
        everything={"command": npm_server(packages, "server-everything", "stdio"), "readable": readable},
        files={"command": npm_server(packages, "server-filesystem", "/files"), "readable": readable},
        time=python_server(worker.folder, "mcp-server-time", "--local-timezone", "UTC"),
    )
    everything, files, time = map(stdio_target, ("everything", "files", "time"))
    one, other = uuid4(), uuid4()
    async with connections(msgspec.structs.replace(PATIENT, commands_file=file), sandbox) as found:
        listed = await asyncio.gather(*(found.list_tools(target, one) for target in (everything, files, time)))
        names = [{tool.name: tool.read_only for tool in tools} for tools in listed]
        assert names[0]["echo"]
        assert (names[1]["write_file"], names[1]["read_text_file"]) == (False, True)
        assert "get_current_time" in names[2]

        assert await call(found, everything, one, "echo", message="hello") == "Echo: hello"
        image = await found.call(everything, one, "get-tiny-image", {}, "key")
        assert [(part.media_type, part.data[:4]) for part in image.images] == [("image/png", b"\x89PNG")]
        refused = await found.call(everything, one, "echo", {"message": 7}, "key")
        assert refused.is_error
        assert "UTC" in await call(found, time, one, "get_current_time", timezone="UTC")

        # The process and its folder stay for the next call, and are those of one session.
        await call(found, files, one, "write_file", path="/files/a.txt", content="of the first")
        assert await call(found, files, one, "read_text_file", path="/files/a.txt") == "of the first"
        absent = await found.call(files, other, "read_text_file", {"path": "/files/a.txt"}, "key")
        assert absent.is_error
    assert worker.processes() == []


async def test_cancelled_and_killed_calls(sandbox: Sandbox, worker: Account, tmp_path: Path) -> None:
    settings = msgspec.structs.replace(PATIENT, commands_file=commands_file(tmp_path, recording=_RECORDING))
    target, owner = stdio_target("recording"), uuid4()
    async with connections(settings, sandbox) as found:

        async def seen(text: str) -> None:
            while text not in await call(found, target, owner, "seen"):
                await asyncio.sleep(0.02)

        waiting = asyncio.create_task(found.call(target, owner, "wait", {"a": 1}, "key-of-the-call"))
        await seen(f"'_meta':{{'{KEY_META}':'key-of-the-call'}}")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await seen("'method':'notifications/cancelled'")

        waiting = asyncio.create_task(found.call(target, owner, "wait", {}, "second"))
        await seen("'second'")
        _kill(worker)
        with pytest.raises(McpFailure, match=r"^The server ended\. The call may have taken effect\.$"):
            await waiting
        # Another process.
        assert "'second'" not in await call(found, target, owner, "seen")
        # Another revision is another connection.
        changed = msgspec.structs.replace(target, revision="2")
        await call(found, target, owner, "seen", key="of-the-first-revision")
        assert "of-the-first-revision" not in await call(found, changed, owner, "seen")
        await found.close_owner(owner)
        assert worker.processes() == []


async def test_idle_connections_are_closed_and_the_number_is_bounded(
    sandbox: Sandbox, worker: Account, tmp_path: Path
) -> None:
    file = commands_file(tmp_path, recording=_RECORDING)
    target = stdio_target("recording")
    async with connections(msgspec.structs.replace(PATIENT, commands_file=file, connections=1), sandbox) as found:
        first, second = uuid4(), uuid4()
        await call(found, target, first, "seen", key="first")
        await call(found, target, second, "seen", key="second")
        assert "'first'" not in await call(found, target, first, "seen", key="again"), "it was closed for the second"
        waiting = asyncio.create_task(found.call(target, first, "wait", {}, "waits"))
        while "'waits'" not in await call(found, target, first, "seen"):
            await asyncio.sleep(0.02)
        with pytest.raises(McpFailure, match="All 1 connections"):
            await call(found, target, second, "seen")
        waiting.cancel()
    async with connections(msgspec.structs.replace(PATIENT, commands_file=file, idle_seconds=0.1), sandbox) as found:
        await call(found, target, uuid4(), "seen")
        while worker.processes():
            await asyncio.sleep(0.05)


async def test_hostile_servers(sandbox: Sandbox, worker: Account, tmp_path: Path) -> None:
    entry = {**_RECORDING, "environment": {"SECRET": "secret-of-the-operator"}}
    silent = {"command": ["/bin/bash", "-c", "sleep 1000"]}
    file = commands_file(tmp_path, recording=entry, silent=silent)
    settings = msgspec.structs.replace(PATIENT, commands_file=file, message_bytes=64 * 1024)
    target, owner = stdio_target("recording"), uuid4()
    async with connections(settings, sandbox) as found:
        failures = {
            "long-line": "more than 65536 bytes",
            "notifications": "more than 65536 bytes without an answer",
            "requests": "too many requests|more than 65536 bytes without an answer",
            "garbage": "too many lines that are not messages",
            "end": r"The server ended: out of luck: \[redacted\] The call may have taken effect",
        }
        for tool, reason in failures.items():
            with pytest.raises(McpFailure, match=reason):
                await call(found, target, owner, tool)
            assert "'tools/call'" in await call(found, target, owner, "seen"), "a new process answers"
        with pytest.raises(McpFailure, match="does not name 'unknown'"):
            await found.list_tools(stdio_target("unknown"), owner)
    async with connections(settings) as found:
        with pytest.raises(McpFailure, match="it needs a sandbox"):
            await found.list_tools(target, owner)
    hasty = msgspec.structs.replace(settings, connect_seconds=0.5)
    async with connections(hasty, sandbox) as found:
        with pytest.raises(McpFailure, match=r"No connection within 0.5 seconds"):
            await found.list_tools(stdio_target("silent"), owner)
    assert worker.processes() == []


def _kill(worker: Account) -> None:
    for process in worker.descendants():
        with suppress(psutil.Error):
            if process.name() == "bash":
                process.send_signal(signal.SIGKILL)

"""The conformance suite of the protocol, from npm: scenarios for clients against ours, and those for servers against
/mcp. `conformance.yaml` says which do not apply, and why."""

import asyncio
import fnmatch
import os
import re
import shlex
import sys
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress

import msgspec
import pytest
from msgspec import Struct

from tests.mcp.targets import HERE, npm_packages
from tests.world import Server, World

ROOT = HERE.parent.parent
# For a machine with other work to do.
TIMEOUT_SECONDS = 120
# Scenarios that run at the same time.
AT_ONCE = 3


class Expected(Struct, frozen=True):
    # Patterns of the names of scenarios, by the reason.
    skipped: dict[str, list[str]]
    # The reasons, by scenario and check.
    failures: dict[str, dict[str, str]]


async def conformance(*arguments: str) -> tuple[int | None, str]:
    packages = npm_packages()
    # The suite needs Node 22.
    process = await asyncio.create_subprocess_exec(
        packages / ".bin" / "node",
        packages / "@modelcontextprotocol" / "conformance" / "dist" / "index.js",
        *arguments,
        cwd=ROOT,
        env=os.environ | {"NO_COLOR": "1"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode, output.decode()


async def check(kind: str, *arguments: str) -> None:
    """Exactly the checks that are listed fail."""
    expected = msgspec.convert(msgspec.yaml.decode((HERE / "conformance.yaml").read_bytes())[kind], Expected)
    _, listed = await conformance("list")
    # Those of a revision of the protocol. The others are extensions.
    section = listed.partition(f"{kind.capitalize()} scenarios")[2].partition("\n\n")[0]
    known = re.findall(r"- (\S+) \[20", section)
    patterns = [pattern for names in expected.skipped.values() for pattern in names]
    assert [pattern for pattern in patterns if not fnmatch.filter(known, pattern)] == [], "no such scenarios"
    names = [name for name in known if not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
    slots = asyncio.Semaphore(AT_ONCE)

    async def run(name: str) -> set[str]:
        async with slots:
            limit = str(TIMEOUT_SECONDS * 1000)
            _, output = await conformance(kind, "--scenario", name, "--timeout", limit, *arguments)
        found = re.findall(r"\[(\S+) *\] (?:\x1b\[\d+m)?(SUCCESS|FAILURE)", output)
        assert found, output
        assert not re.search("TIMED OUT|EXITED WITH ERROR", output), output
        return {check for check, result in found if result == "FAILURE"}

    failed = dict(zip(names, await asyncio.gather(*map(run, names)), strict=True))
    assert {name: checks for name, checks in failed.items() if checks} == {
        name: set(checks) for name, checks in expected.failures.items()
    }


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_client() -> None:
    await check("client", "--command", shlex.join([sys.executable, "-m", "tests.mcp.conformance_client"]))


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_server(world: World, server: Server) -> None:
    async with authorizing_proxy(server, world.headers()["Authorization"]) as url:
        await check("server", "--url", f"{url}/mcp")


@asynccontextmanager
async def authorizing_proxy(server: Server, authorization: str) -> AsyncIterator[str]:
    """The suite sends no credential. One request for each connection."""

    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        host, port = server.url.removeprefix("http://").split(":")
        with closing(writer), suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            answers, requests = await asyncio.open_connection(host, int(port))
            kept = [line for line in head.split(b"\r\n")[:-2] if not line.lower().startswith(b"connection:")]
            more = [f"Authorization: {authorization}".encode(), b"Connection: close", b"", b""]
            with closing(requests):
                requests.write(b"\r\n".join([*kept, *more]))
                sending = asyncio.create_task(_pipe(reader, requests))
                try:
                    await _pipe(answers, writer)
                finally:
                    sending.cancel()
                    await asyncio.wait([sending])

    proxy = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://localhost:{proxy.sockets[0].getsockname()[1]}"
    finally:
        proxy.close()


async def _pipe(reader: StreamReader, writer: StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()

"""The conformance suite of the protocol, from npm: scenarios for clients against ours, and those for servers against
/mcp. `conformance.yaml` lists the scenarios that do not apply, and why."""

import asyncio
import os
import re
import shlex
import sys
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec
import pytest

from tests.mcp.targets import HERE, npm_packages
from tests.world import Server, World

ROOT = HERE.parent.parent
# For a machine with other work to do.
TIMEOUT_SECONDS = 120
# Scenarios that run at the same time.
AT_ONCE = 3


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


async def scenarios(kind: str) -> list[str]:
    """Those that apply."""
    _, listed = await conformance("list")
    parts = dict(re.findall(r"^(\w+) scenarios.*?:\n((?:  - .*\n)+)", listed, re.MULTILINE))
    # With a list of revisions, or `[extension]`.
    names = re.findall(r"- (\S+) \[20", parts[kind.capitalize()])
    file: dict[str, dict[str, str]] = msgspec.yaml.decode((HERE / "conformance.yaml").read_bytes())
    left_out = [pattern for patterns in file[kind].values() for pattern in patterns]
    unknown = [name for name in left_out if name not in names]
    assert unknown == [], "not in the suite any more"
    return [name for name in names if name not in left_out]


async def run(kind: str, names: list[str], *arguments: str) -> None:
    places = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> str:
        async with places:
            code, output = await conformance(
                kind, "--scenario", name, "--timeout", str(TIMEOUT_SECONDS * 1000), *arguments
            )
        return "" if code == 0 and "failed" in output and " 0 failed" in output else f"{name}: {output}"

    assert [failed for failed in await asyncio.gather(*map(one, names)) if failed] == []


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_client() -> None:
    names = await scenarios("client")
    assert "http-custom-headers" in names
    await run("client", names, "--command", shlex.join([sys.executable, "-m", "tests.mcp.conformance_client"]))


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_server(world: World, server: Server) -> None:
    names = await scenarios("server")
    assert "dns-rebinding-protection" in names
    async with authorizing_proxy(server, world.headers()["Authorization"]) as url:
        await run("server", names, "--url", f"{url}/mcp")


@asynccontextmanager
async def authorizing_proxy(server: Server, authorization: str) -> AsyncIterator[str]:
    """The suite sends no credential. One request for each connection."""

    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        host, port = server.url.removeprefix("http://").split(":")
        with suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            answers, requests = await asyncio.open_connection(host, int(port))
            kept = [line for line in head.split(b"\r\n")[:-2] if not line.lower().startswith(b"connection:")]
            more = [f"Authorization: {authorization}".encode(), b"Connection: close", b"", b""]
            requests.write(b"\r\n".join([*kept, *more]))
            sending = asyncio.create_task(_pipe(reader, requests))
            await _pipe(answers, writer)
            sending.cancel()
            requests.close()
        writer.close()

    proxy = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://localhost:{proxy.sockets[0].getsockname()[1]}"
    finally:
        proxy.close()


async def _pipe(reader: StreamReader, writer: StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()

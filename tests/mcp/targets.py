"""MCP servers as targets of connections: in the sandbox, and by URL."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from quarterdeck.connections.credentials.model import Authorization
from quarterdeck.connections.mcp.connections import McpConnections
from quarterdeck.connections.mcp.model import McpTarget
from quarterdeck.core.setting_types import AddressExceptions
from quarterdeck.core.settings import McpSettings
from quarterdeck.sandbox.adapter import Sandbox
from tests.mcp.reachable import reachable_packages, reachable_python

HERE = Path(__file__).parent
_WORKSPACE_ID = uuid4()
LOCAL = AddressExceptions.parse("127.0.0.1/32")
# For a machine with other work to do.
PATIENT = McpSettings(allowed_addresses=LOCAL, connect_seconds=120, call_seconds=120)


def npm_packages() -> Path:
    """The folder of the servers from npm. Skips the test if they are not installed, unless they must be."""
    folder = HERE / "node_modules"
    if not (folder / ".installed").exists():
        reason = "the MCP servers from npm are not installed; `make mcp-servers` does it"
        if os.environ.get("QUARTERDECK_TEST_BROWSER") == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    return folder


def npm_server(packages: Path, name: str, *arguments: str) -> list[str]:
    return ["node", str(packages / "@modelcontextprotocol" / name / "dist" / "index.js"), *arguments]


def python_server(folder: Path, distribution: str, *arguments: str) -> dict[str, Any]:
    """The entry of a server from PyPI. `folder` is one that every user can enter."""
    prefix, packages = reachable_python(folder), reachable_packages(distribution, folder)
    python = prefix / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    return {
        "command": [str(python), "-m", distribution.replace("-", "_"), *arguments],
        # The library path: a linked interpreter would otherwise load the libpython of the system.
        "environment": {"PYTHONPATH": str(packages), "LD_LIBRARY_PATH": str(prefix / "lib")},
        "readable": [str(packages), str(prefix)],
    }


def commands_file(folder: Path, **entries: dict[str, Any]) -> str:
    file = folder / "commands.yaml"
    file.write_bytes(msgspec.yaml.encode(entries))
    return str(file)


def stdio_target(command: str) -> McpTarget:
    return _target(name=command, url=None, command=command, authorization=None)


def http_target(url: str, authorization: Authorization | None = None, workspace_id: UUID = _WORKSPACE_ID) -> McpTarget:
    return _target(name="remote", url=url, command=None, authorization=authorization, workspace_id=workspace_id)


def _target(**fields: Any) -> McpTarget:
    return McpTarget(**{"server_id": uuid4(), "workspace_id": _WORKSPACE_ID, "revision": "1", **fields})


@asynccontextmanager
async def connections(
    settings: McpSettings, sandbox: Sandbox | None = None, **options: Any
) -> AsyncIterator[McpConnections]:
    found = McpConnections(settings, sandbox, **options)
    try:
        yield found
    finally:
        await found.close()


async def call(
    found: McpConnections, target: McpTarget, owner: UUID, tool: str, key: str = "key-1", **arguments: Any
) -> str:
    """The text of the result."""
    return (await found.call(target, owner, tool, arguments, key)).text

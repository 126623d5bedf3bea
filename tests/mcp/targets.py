"""MCP servers as targets of connections: in the sandbox, and by URL."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn
from uuid import UUID, uuid4

import msgspec
import pytest

from quarterdeck.agents.mcp.connections import McpConnections
from quarterdeck.agents.mcp.model import McpTarget
from quarterdeck.agents.sandbox.model import Sandbox
from quarterdeck.core.agent_settings import McpSettings
from quarterdeck.core.setting_types import AddressExceptions
from quarterdeck.credentials.model import Authorization

HERE = Path(__file__).parent
LOCAL = AddressExceptions.parse("127.0.0.1/32")
# For a machine with other work to do.
PATIENT = McpSettings(allowed_addresses=LOCAL, connect_seconds=120, call_seconds=120)


def npm_server(name: str, *arguments: str) -> list[str]:
    """The command of a server from npm. Skips the test if it is not installed, unless it must be."""
    folder = HERE / "node_modules"
    if not (folder / ".installed").exists():
        _skip("the MCP servers from npm are not installed; `make mcp-servers` does it")
    return ["node", str(folder / "@modelcontextprotocol" / name / "dist" / "index.js"), *arguments]


def _skip(reason: str) -> NoReturn:
    if os.environ.get("QUARTERDECK_TEST_BROWSER") == "required":
        pytest.fail(reason)
    pytest.skip(reason)


def python_module(name: str, *arguments: str) -> dict[str, Any]:
    """The entry of an installed Python module. The user of the sandbox may be unable to enter the folder of this
    interpreter: then the same version of the system is used."""
    python = Path(sys.executable).resolve()
    if not all(folder.stat().st_mode & 0o001 for folder in python.parents):
        python = Path("/usr/bin") / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    if not python.exists():
        pytest.skip("the sandbox cannot read this Python, and the system has none of this version")
    packages = str(Path(msgspec.__file__).parent.parent)
    return {
        "command": [str(python), "-m", name, *arguments],
        "environment": {"PYTHONPATH": packages},
        "readable": [packages, str(python.parent.parent)],
    }


def commands_file(folder: Path, **entries: dict[str, Any]) -> str:
    file = folder / "commands.yaml"
    file.write_bytes(msgspec.yaml.encode(entries))
    return str(file)


def stdio_target(command: str) -> McpTarget:
    return _target(name=command, url=None, command=command, authorization=None)


def http_target(url: str, authorization: Authorization | None = None) -> McpTarget:
    return _target(name="remote", url=url, command=None, authorization=authorization)


def _target(**fields: Any) -> McpTarget:
    return McpTarget(server_id=uuid4(), revision="1", **fields)


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

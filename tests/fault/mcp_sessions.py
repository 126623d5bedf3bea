"""Sessions with tools of MCP servers, for tests."""

from typing import Any

from tests.fault.waiting import start
from tests.mcp_server import McpServer
from tests.workers import eventually, log_of
from tests.world import World

# Workers and API connect to servers on this machine, which may be busy.
LOCAL = {"MCP_ALLOWED_ADDRESSES": "127.0.0.0/8", "MCP_CONNECT_SECONDS": 100}


async def new_mcp_server(world: World, url: str, name: str = "files") -> str:
    answer = await world.post("/v1/mcp-servers", {"name": name, "url": url})
    assert answer.status_code == 201, answer.text
    server_id: str = answer.json()["id"]
    return server_id


async def new_session(world: World, *mcp_servers: str, **fields: Any) -> str:
    answer = await world.post("/v1/sessions", {"mcp_servers": mcp_servers, "sandbox": None, **fields})
    assert answer.status_code == 201, answer.text
    session_id: str = answer.json()["id"]
    return session_id


async def data_of(world: World, session_id: str, event_type: str) -> list[dict[str, Any]]:
    return [entry["data"] for entry in await log_of(world, session_id) if entry["type"] == event_type]


async def texts_of(world: World, session_id: str) -> list[str]:
    return [data["text"] for data in await data_of(world, session_id, "tool.result")]


async def run(world: World, session_id: str, *calls: str) -> str:
    """Starts a run with these calls in one answer."""
    return await start(world, session_id, "\n".join(f"call: {call}" for call in calls))


# The tool of a server with the name `files`.
ECHO = 'files__echo {"text": "hello"}'


async def is_slow(mcp: McpServer) -> None:
    """Wait until a call of `slow` runs."""

    async def look() -> bool:
        return bool((await mcp.state())["running"])

    await eventually(look)

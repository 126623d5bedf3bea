"""Tools of MCP servers in runs of a real worker: asked about, pinned, cancelled, missing."""

from collections.abc import Iterator

import pytest

from tests.fault.mcp_sessions import ECHO, LOCAL, data_of, is_slow, new_mcp_server, new_session, run, texts_of
from tests.fault.waiting import open_actions, resolve, succeeded
from tests.mcp_server import McpServer, mcp_server
from tests.workers import Worker, ended, eventually, working
from tests.world import PATIENT, Server, World, clone_database, drop_database, free_port, serving

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def server(postgres_url: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With a database that only the workers of these tests look into."""
    url = clone_database(postgres_url, template)
    with serving(url, tmp_path_factory.mktemp("api"), **PATIENT, **LOCAL) as server:
        yield server
    drop_database(postgres_url, url)


@pytest.fixture(scope="module")
def worker(server: Server) -> Iterator[Worker]:
    """For tests that end no worker."""
    with working(server.database_url, server.data_dir, **LOCAL) as worker:
        yield worker


@pytest.fixture(scope="module")
def mcp() -> Iterator[McpServer]:
    with mcp_server() as mcp:
        yield mcp


@pytest.mark.usefixtures("worker")
async def test_a_tool_asks_unless_it_is_allowed(world: World, mcp: McpServer) -> None:
    """A definition that changed asks again, whatever was allowed or remembered before. A check accepts it."""
    server_id = await new_mcp_server(world, mcp.url)
    session_id = await new_session(world, server_id)
    run_id = await run(world, session_id, ECHO)
    [action] = await open_actions(world, run_id)
    assert action["tool"] == "files__echo"
    claim = "of the MCP server files (the server says that it only reads)"
    assert action["reason"] == f"The model wants to call files__echo {claim}."
    await resolve(world, action, decision="allow", remember="session")
    await succeeded(world, run_id)
    await succeeded(world, await run(world, session_id, ECHO))
    assert await texts_of(world, session_id) == ["hello", "hello"]

    allowing = await new_session(world, server_id, tool_policy={"files__*": "allow"})
    await succeeded(world, await run(world, allowing, ECHO, "files__fail"))
    assert await texts_of(world, allowing) == ["hello", "Error: No such record."]
    started = await data_of(world, allowing, "tool.started")
    assert [data["key"] for data in started] == (await mcp.state())["keys"][-2:]

    await mcp.change("Returns the text, and more.")
    for changed in (session_id, allowing):
        run_id = await run(world, changed, ECHO)
        [action] = await open_actions(world, run_id)
        assert "its definition has changed" in action["reason"]
        await resolve(world, action, decision="allow", remember="session")
        await succeeded(world, run_id)
        await succeeded(world, await run(world, changed, ECHO))
    fresh = await new_session(world, server_id, tool_policy={"files__*": "allow"})
    run_id = await run(world, fresh, ECHO)
    [action] = await open_actions(world, run_id)
    await resolve(world, action, decision="deny")
    await succeeded(world, run_id)
    check = await world.post(f"/v1/mcp-servers/{server_id}/check", None)
    assert check.json()["ok"], check.text
    await succeeded(world, await run(world, fresh, ECHO))
    assert (await texts_of(world, fresh))[-1] == "hello"


@pytest.mark.usefixtures("worker")
async def test_servers_that_are_not_there(world: World, mcp: McpServer) -> None:
    """The run goes on, and the model is told: at the start of the run, and in the result of a call."""
    gone = await new_mcp_server(world, mcp.url, "gone")
    dead = await new_mcp_server(world, f"http://127.0.0.1:{free_port()}/mcp", "dead")
    live = await new_mcp_server(world, mcp.url, "live")
    session_id = await new_session(world, gone, dead, live, tool_policy={"live__*": "ask"})
    assert (await world.delete(f"/v1/mcp-servers/{gone}")).status_code == 204
    run_id = await run(world, session_id, 'live__echo {"text": "x"}', "dead__echo")
    [action] = await open_actions(world, run_id)
    unavailable = await data_of(world, session_id, "mcp.unavailable")
    assert [(data["server_id"], data["name"]) for data in unavailable] == [(dead, "dead"), (gone, None)]
    assert all(data["reason"] for data in unavailable)
    # Deleted while the run waits: its tools stay those of the run.
    assert (await world.delete(f"/v1/mcp-servers/{live}")).status_code == 204
    await resolve(world, action, decision="allow")
    await succeeded(world, run_id)
    assert len(await data_of(world, session_id, "mcp.unavailable")) == 2, "not again in the second attempt"
    texts = await texts_of(world, session_id)
    assert texts == ['Error: there is no tool "dead__echo".', "Error: The MCP server was deleted."]
    [(kept,)] = await world.fetch("SELECT mcp_tools FROM runs WHERE id = %s", run_id)
    assert kept is None


@pytest.mark.usefixtures("worker")
async def test_a_server_dies_during_a_call_and_a_run_is_cancelled(world: World, mcp: McpServer) -> None:
    session_id = await new_session(
        world, await new_mcp_server(world, mcp.url), tool_policy={"files__*": "allow", "brief__*": "allow"}
    )
    before = (await mcp.state())["cancelled"]
    run_id = await run(world, session_id, "files__slow")

    async def is_cancelled() -> bool:
        return bool((await mcp.state())["cancelled"] == before + 1)

    await is_slow(mcp)
    assert (await world.post(f"/v1/runs/{run_id}/cancel", None)).status_code == 200
    await eventually(is_cancelled)
    assert (await ended(world, run_id))["state"] == "cancelled"

    with mcp_server() as brief:
        brief_id = await new_mcp_server(world, brief.url, "brief")
        session_id = await new_session(world, brief_id, tool_policy={"brief__*": "allow"})
        await succeeded(world, await run(world, session_id, "brief__die"))
        [text] = await texts_of(world, session_id)
        assert text.startswith("Error: ")
        assert text.endswith("The call may have taken effect.")

"""Runs with tools of MCP servers whose worker is killed, and what models get of their results."""

import base64
import json
import signal
import socket
from collections.abc import Iterator

import pytest

from tests.contract.provider_server import OPENAI, streams
from tests.fault.mcp_sessions import ECHO, LOCAL, data_of, is_slow, new_mcp_server, new_session, run, texts_of
from tests.fault.stand_in import StandIn, asking
from tests.fault.waiting import open_actions, resolve, succeeded
from tests.mcp_server import PNG, mcp_server
from tests.workers import take_for_dead, working
from tests.world import PATIENT, Server, World, clone_database, drop_database, serving


@pytest.fixture(scope="module")
def server(postgres_url: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With a database that only the workers of these tests look into."""
    url = clone_database(postgres_url, template)
    with serving(url, tmp_path_factory.mktemp("api"), **PATIENT, **LOCAL) as server:
        yield server
    drop_database(postgres_url, url)


@pytest.mark.long
async def test_a_run_keeps_its_tools_when_its_worker_is_killed(world: World, server: Server) -> None:
    """They are not listed again, also if they changed. What became of the call is unknown."""
    with mcp_server() as mcp:
        session_id = await new_session(world, await new_mcp_server(world, mcp.url), tool_policy={"files__*": "allow"})
        run_id = await run(world, session_id, "files__slow")

        with working(server.database_url, server.data_dir, **LOCAL) as first:
            await is_slow(mcp)
            first.signal(signal.SIGKILL)
            first.process.wait()
        await mcp.change("Something else.")
        await take_for_dead(world)
        with working(server.database_url, server.data_dir, **LOCAL):
            [action] = await open_actions(world, run_id)
            assert (action["kind"], action["tool"]) == ("unknown_outcome", "files__slow")
            await world.submit(session_id, f"call: {ECHO}")
            await resolve(world, action, decision="done", result="It was slow.")
            await succeeded(world, run_id)
        assert await texts_of(world, session_id) == ["It was slow.", "hello"], "nobody was asked about the change"
        state = await mcp.state()
        # Each connection of the SDK lists them once, for the headers of calls; the run keeps those that it had.
        assert state["methods"]["tools/list"] == 2
        assert state["keys"] == [data["key"] for data in await data_of(world, session_id, "tool.started")]


@pytest.mark.long
async def test_images_reach_models_that_take_them(world: World, server: Server) -> None:
    with mcp_server() as mcp, socket.create_server(("127.0.0.1", 0)) as door:
        server_id = await new_mcp_server(world, mcp.url)
        call = streams(OPENAI.calls("", ("call_1", "files__image", "{}")))
        async with StandIn.running(door) as stand_in:
            stand_in.replies["sees"] = [call]
            session_id = await new_session(
                world, server_id, model="openai-chat:sees", tool_policy={"files__*": "allow"}
            )
            with working(server.database_url, server.data_dir, **LOCAL, **asking(door)):
                run_id = (await world.submit(session_id)).json()["run_id"]
                await succeeded(world, run_id)
            [result] = await data_of(world, session_id, "tool.result")
            assert result["text"] == "A chart."
            [image] = result["images"]
            assert (image["media_type"], image["bytes"]) == ("image/png", len(PNG))
            sent = json.dumps(stand_in.bodies["sees"][-1])
            assert base64.b64encode(PNG).decode() in sent
            # The contents of images are kept with the session.
            kept = await world.fetch(
                "SELECT encode(sha256, 'hex') FROM session_attachments WHERE session_id = %s", session_id
            )
            assert kept == [(image["sha256"],)]

"""Tool calls of a real worker: asked about, denied, carried out by the caller, interrupted. No effect happens twice."""

from collections.abc import Iterator

import pytest

from tests.fault.waiting import open_actions, resolve, results_of
from tests.workers import check_log, ended, log_of, working
from tests.world import PATIENT, Server, World, clone_database, drop_database, serving


@pytest.fixture(scope="module")
def server(postgres_url: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With a database that only the workers of these tests look into."""
    url = clone_database(postgres_url, template)
    with serving(url, tmp_path_factory.mktemp("api"), **PATIENT) as server:
        yield server
    drop_database(postgres_url, url)


async def notes_of(world: World, session_id: str) -> list[str]:
    return [entry["data"]["text"] for entry in await log_of(world, session_id) if entry["type"] == "note"]


async def test_approvals(world: World, server: Server) -> None:
    with working(server.database_url, server.data_dir):
        for answer, notes, result in [
            ({"decision": "allow"}, ["x"], "The note is stored."),
            ({"decision": "deny", "message": "Not now."}, [], "Denied: Not now."),
            (
                {"decision": "allow", "arguments": {"text": "y"}},
                ["y"],
                'Carried out with changed arguments: {"text":"y"}\n\nThe note is stored.',
            ),
        ]:
            session_id = await world.new_session()
            run_id = (await world.submit(session_id, "note: x")).json()["run_id"]
            [action] = await open_actions(world, run_id)
            assert (action["kind"], action["tool"], action["arguments"]) == ("approval", "add_note", {"text": "x"})
            await resolve(world, action, **answer)
            assert (await ended(world, run_id))["state"] == "succeeded"
            assert await notes_of(world, session_id) == notes
            assert await results_of(world, session_id) == {"add_note": result}
            check_log(await log_of(world, session_id))

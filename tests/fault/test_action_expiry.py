"""A worker closes actions that nobody answers in time, each kind after its own time, and the run goes on."""

import pytest

from tests.fault.waiting import new_session, notes_of, open_actions, resolve, results_of, start, succeeded
from tests.workers import eventually, log_of, working
from tests.world import Server, World

LOOKUP = {"name": "crm_lookup", "description": "Find a customer.", "parameters": {"type": "object"}}


@pytest.mark.long
async def test_a_worker_expires_actions(world: World, server: Server) -> None:
    session_id = await new_session(world, client_tools=[LOOKUP])
    webhook_id = await world.new_webhook("https://example.com/hook", "action.resolved")
    with working(server.database_url, server.data_dir, ACTION_EXPIRY_APPROVAL_SECONDS=1):
        run_id = await start(world, session_id, 'call: add_note {"text": "x"}\ncall: crm_lookup')
        note, lookup = await open_actions(world, run_id, 2)

        async def only_the_lookup_is_open() -> bool:
            waiting: list[str] = (await world.get(f"/v1/runs/{run_id}")).json()["waiting_for"]
            return waiting == [lookup["id"]]

        await eventually(only_the_lookup_is_open)
        expired = (await world.get(f"/v1/actions/{note['id']}")).json()
        assert (expired["state"], expired["resolution"], expired["resolved_by"]) == ("expired", None, None)
        await resolve(world, lookup, result="Ada")
        await succeeded(world, run_id)
    assert await notes_of(world, session_id) == []
    assert (await results_of(world, session_id))["crm_lookup"] == "Ada"
    closings = [entry["data"] for entry in await log_of(world, session_id) if entry["type"] == "action.resolved"]
    assert [(one["action_id"], one["state"]) for one in closings] == [
        (note["id"], "expired"),
        (lookup["id"], "resolved"),
    ]
    query = (
        "SELECT convert_from(payload, 'UTF8')::jsonb->'data'->>'state' FROM webhook_deliveries WHERE webhook_id = %s"
    )
    assert await world.fetch(f"{query} ORDER BY id", webhook_id) == [("expired",), ("resolved",)]

"""DELETE /v1/sessions/{session_id}/inputs/{input_id}, while no worker runs. See also tests/fault/test_repair.py."""

from uuid import UUID

from quarterdeck.core.ids import new_id
from tests.workers import check_log, log_of
from tests.world import World, error_of


async def submitted(world: World, session_id: str, *texts: str) -> tuple[str, list[str]]:
    """The run of these inputs, and their ids."""
    runs = {(await world.submit(session_id, text)).json()["run_id"] for text in texts}
    accepted = [entry for entry in await log_of(world, session_id) if entry["type"] == "input.accepted"]
    return runs.pop(), [entry["data"]["input_id"] for entry in accepted[-len(texts) :]]


async def test_waiting_inputs_are_withdrawn(world: World) -> None:
    session_id = await world.new_session()
    run_id, (first, second, third) = await submitted(world, session_id, "first", "sécond", "third")
    path = f"/v1/sessions/{session_id}/inputs"
    assert (await world.delete(f"{path}/{third}")).status_code == 204
    assert (await world.delete(f"{path}/{first}")).status_code == 204
    assert error_of(await world.delete(f"{path}/{first}")) == (409, "conflict")
    assert error_of(await world.delete(f"{path}/{new_id()}")) == (404, "not_found")
    row = "SELECT inputs_accepted, unconsumed_bytes, state FROM runs WHERE id = %s"
    assert await world.fetch(row, UUID(run_id)) == [(1, len("sécond".encode()), "queued")]
    # The run has nothing to consume any more.
    assert (await world.delete(f"{path}/{second}")).status_code == 204
    assert (await world.get(f"/v1/runs/{run_id}")).json()["state"] == "cancelled"
    log = await log_of(world, session_id)
    check_log(log)
    ends = [(entry["type"], entry["data"].get("reason")) for entry in log[3:]]
    assert ends == [*[("input.discarded", "withdrawn")] * 3, ("run.cancelled", None)]
    (event, *_) = (await world.get("/v1/audit-events?action=discard_input")).json()["items"]
    assert event["object_id"] == session_id
    assert event["detail"] == {"input_id": second, "reason": "withdrawn"}


async def test_a_withdrawn_input_is_not_discarded_again(world: World) -> None:
    session_id = await world.new_session()
    run_id, (kept, withdrawn) = await submitted(world, session_id, "kept", "withdrawn")
    token = await world.new_token(session_id)
    other = await world.new_token(await world.new_session())
    path = f"/v1/sessions/{session_id}/inputs/{withdrawn}"
    assert error_of(await world.delete(path, key=other)) == (404, "not_found")
    assert (await world.delete(path, key=token)).status_code == 204
    assert (await world.post(f"/v1/runs/{run_id}/cancel")).json()["discarded_input_ids"] == [kept]
    check_log(await log_of(world, session_id))
    assert error_of(await world.delete(f"/v1/sessions/{session_id}/inputs/{kept}")) == (409, "conflict")

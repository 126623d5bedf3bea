"""DELETE /v1/sessions/{session_id}/inputs/{input_id}, while no worker runs. See also tests/fault/test_repair.py."""

from uuid import UUID

from quarterdeck.core.ids import new_id
from quarterdeck.core.settings import DatabaseSettings
from quarterdeck.db.database import Database
from quarterdeck.runs import lifecycle
from tests.contract.agent_requests import begin_run
from tests.workers import check_log, log_of
from tests.world import World, app_url, error_of


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
    assert (await world.post(f"/v1/runs/{run_id}/cancel", {})).json()["discarded_input_ids"] == [kept]
    check_log(await log_of(world, session_id))
    assert error_of(await world.delete(f"/v1/sessions/{session_id}/inputs/{kept}")) == (409, "conflict")


async def failed(world: World, session_id: str, *texts: str) -> tuple[str, list[str]]:
    """A run that failed after it had consumed these inputs, and their ids."""
    run_id, input_ids = await submitted(world, session_id, *texts)
    lease = await begin_run(world, run_id)
    database = Database(app_url(world.database_url), DatabaseSettings(pool_connections=2))
    await database.open()
    await lifecycle.fail(database, lease, "The provider is away.")
    await database.close()
    return run_id, input_ids


async def test_a_session_token_drops_and_retries_what_others_sent(world: World) -> None:
    """It takes part in the conversation as everybody does, and the log names it. It could cancel the run, too."""
    session_id = await world.new_session()
    run_id, (dropped, kept) = await failed(world, session_id, "dropped", "kept")
    token = await world.new_token(session_id)
    assert (await world.delete(f"/v1/sessions/{session_id}/inputs/{dropped}", key=token)).status_code == 204
    retried = await world.post(f"/v1/runs/{run_id}/retry", None, key=token)
    assert retried.status_code == 201
    _, (withdrawn,) = await submitted(world, session_id, "withdrawn")
    assert (await world.delete(f"/v1/sessions/{session_id}/inputs/{withdrawn}", key=token)).status_code == 204
    log = await log_of(world, session_id)
    token_id = (await world.get(f"/v1/sessions/{session_id}/tokens")).json()["items"][0]["id"]
    by = {
        entry["data"]["input_id"]: (entry["data"]["actor"]["type"], entry["data"]["actor"]["id"])
        for entry in log
        if entry["type"] == "input.discarded"
    }
    assert by == dict.fromkeys((dropped, withdrawn), ("session_token", token_id))
    [copy] = [one["data"] for one in log if one["type"] == "input.accepted" and "retried_from" in one["data"]]
    assert (copy["text"], copy["actor"]["id"]) == ("kept", token_id)
    # A token of another session cannot tell whether they exist.
    other = await world.new_token(await world.new_session())
    assert error_of(await world.post(f"/v1/runs/{run_id}/retry", None, key=other)) == (404, "not_found")
    assert error_of(await world.delete(f"/v1/sessions/{session_id}/inputs/{kept}", key=other)) == (404, "not_found")


async def test_the_search_does_not_find_dropped_inputs(world: World) -> None:
    session_id = await world.new_session()
    await submitted(world, session_id, "avocado")
    _, (dropped, _) = await failed(world, session_id, "banana", "cherry")

    async def found(word: str) -> list[str]:
        page = await world.get(f"/v1/sessions?search={word}&in=conversations")
        return [one["id"] for one in page.json()["items"]]

    words = ("avocado", "banana", "cherry")
    assert [await found(word) for word in words] == [[session_id]] * 3
    assert (await world.delete(f"/v1/sessions/{session_id}/inputs/{dropped}")).status_code == 204
    assert [await found(word) for word in words] == [[session_id], [], [session_id]]

"""Who asked: the actor of each input in the log of a session, and the key of each run."""

from typing import Any
from uuid import UUID

from msgspec import Struct

from quarterdeck.core.actors import Permission
from quarterdeck.core.settings import DatabaseSettings, RunSettings
from quarterdeck.db.database import Database
from quarterdeck.runs import lifecycle
from tests.workers import begin_demo_run, log_of
from tests.world import Server, World, app_url

_KEYS_OF_RUNS = "SELECT id, api_key_id FROM runs WHERE session_id = %s ORDER BY id"


class Asking(Struct, frozen=True):
    """A caller: what it sends, and how the log names it."""

    secret: str
    actor: dict[str, Any]
    api_key_id: UUID


async def new_key(world: World, label: str) -> Asking:
    ((user_id,),) = await world.fetch("SELECT owner_id FROM workspaces WHERE id = %s", world.workspace_id)
    secret, key_id = await world.new_key_record((Permission.SESSION_MANAGE, Permission.WORKSPACE_READ), label=label)
    user = {"user_id": str(user_id), "display_name": "Ada"}
    return Asking(secret, {"type": "api_key", "id": str(key_id), "label": label, **user}, key_id)


async def new_token(world: World, session_id: str, key: Asking, label: str | None) -> Asking:
    token = (await world.post(f"/v1/sessions/{session_id}/tokens", {"label": label}, key=key.secret)).json()
    actor = key.actor | {"type": "session_token", "id": token["id"], "label": label}
    return Asking(token["token"], actor, key.api_key_id)


async def send(world: World, session_id: str, asking: Asking, text: str, delivery: str | None = None) -> str:
    answer = await world.submit(session_id, text, key=asking.secret, delivery=delivery)
    assert answer.status_code == 200, answer.text
    run_id: str = answer.json()["run_id"]
    return run_id


async def test_every_input_names_its_caller_and_every_run_has_a_key(world: World, server: Server) -> None:
    await world.execute("UPDATE users SET display_name = 'Ada'")
    session_id = await world.new_session()
    ada, build = await new_key(world, "Ada's laptop"), await new_key(world, "build server")
    widget = await new_token(world, session_id, build, "support widget")
    nameless = await new_token(world, session_id, ada, None)
    database = Database(app_url(server.database_url), DatabaseSettings(pool_connections=2))
    await database.open()

    async def fail(run_id: str) -> None:
        lease = await begin_demo_run(database, UUID(run_id), RunSettings(step_input_bytes=1))
        assert lease is not None
        await lifecycle.fail(database, lease, "told to fail")

    try:
        first = await send(world, session_id, widget, "starts")
        assert await send(world, session_id, ada, "steers") == first
        # The input of the key starts the next run, but the first one was started by the token.
        await fail(first)
        await send(world, session_id, nameless, "queued", "queue")
        interrupting = await send(world, session_id, ada, "interrupts", "interrupt")
        await send(world, session_id, widget, "queued too", "queue")
        await world.post(f"/v1/runs/{interrupting}/cancel", None)
        for run in (await world.get(f"/v1/sessions/{session_id}/runs")).json()["items"]:
            await world.post(f"/v1/runs/{run['id']}/cancel", None)
        retried = await world.post(f"/v1/runs/{first}/retry", None, key=build.secret)
        assert retried.status_code == 201, retried.text
    finally:
        await database.close()

    log = await log_of(world, session_id)
    actors = [(one["data"]["text"], one["data"]["actor"]) for one in log if one["type"] == "input.accepted"]
    assert actors == [
        ("starts", widget.actor),
        ("steers", ada.actor),
        ("queued", nameless.actor),
        ("interrupts", ada.actor),
        ("queued too", widget.actor),
        ("starts", build.actor),
    ]
    keys = [key_id for _, key_id in await world.fetch(_KEYS_OF_RUNS, session_id)]
    by_widget = build.api_key_id
    assert keys == [by_widget, by_widget, ada.api_key_id, ada.api_key_id, by_widget, build.api_key_id]

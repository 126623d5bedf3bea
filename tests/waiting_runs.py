"""Runs that wait for actions, made without a worker."""

from collections.abc import Sequence

from quarterdeck.core.ids import parse_id
from quarterdeck.core.settings import ActionSettings
from quarterdeck.events.log import lock_session
from quarterdeck.runs import action_records
from quarterdeck.runs.action_model import ActionKind, LimitScope, NewAction, ReachedLimit
from tests.world import World

# As the worker that begins to wait does it. Its job ends with it.
_WAIT = """
UPDATE runs SET state = 'waiting', waiting_since = clock_timestamp(), attempt = attempt + 1,
       started_at = coalesce(started_at, clock_timestamp())
WHERE id = %s AND state IN ('queued', 'running')
"""
_END_JOB = "DELETE FROM run_jobs WHERE run_id = %s"


def approval(tool: str = "add_note", **arguments: object) -> NewAction:
    return NewAction(
        kind=ActionKind.APPROVAL, reason="The tool asks.", step=1, call_id="call_1", tool=tool, arguments=arguments
    )


def tool_result(tool: str = "look_up", call_id: str = "call_2") -> NewAction:
    return NewAction(
        kind=ActionKind.TOOL_RESULT, reason="The caller answers.", step=1, call_id=call_id, tool=tool, arguments={}
    )


def unknown_outcome(tool: str = "add_note") -> NewAction:
    return NewAction(
        kind=ActionKind.UNKNOWN_OUTCOME,
        reason="Its worker was lost.",
        step=1,
        call_id="call_3",
        tool=tool,
        arguments={},
        attempt=1,
    )


def budget(scope: LimitScope = LimitScope.RUN, max_cost_usd: float | None = None) -> NewAction:
    reached = ReachedLimit(scope, "max_tokens", 100, 120)
    if max_cost_usd is not None:
        reached = ReachedLimit(scope, "max_cost_usd", max_cost_usd, max_cost_usd)
    return NewAction(kind=ActionKind.BUDGET, reason="The limit of tokens is reached.", reached=reached)


async def new_actions(
    world: World, session_id: str, run_id: str, new: Sequence[NewAction], expiry_seconds: int = 3600
) -> list[str]:
    session, run = parse_id(session_id), parse_id(run_id)
    assert session is not None
    assert run is not None
    settings = ActionSettings(*[expiry_seconds] * 4)
    async with await world.connect() as connection, connection.transaction():
        await lock_session(connection, session)
        await action_records.open_actions(connection, world.workspace_id, session, run, new, settings)
    rows = await world.fetch("SELECT id FROM actions WHERE run_id = %s ORDER BY id DESC LIMIT %s", run_id, len(new))
    return [str(action_id) for (action_id,) in reversed(rows)]


async def wait_for(world: World, run_id: str) -> None:
    async with await world.connect() as connection, connection.transaction():
        await connection.execute(_WAIT, (run_id,))
        await connection.execute(_END_JOB, (run_id,))


async def waiting_run(
    world: World, *new: NewAction, session_id: str | None = None, expiry_seconds: int = 3600
) -> tuple[str, str, list[str]]:
    """The ids of the session, of the run and of its open actions."""
    session_id = session_id or await world.new_session()
    run_id: str = (await world.submit(session_id)).json()["run_id"]
    await wait_for(world, run_id)
    return session_id, run_id, await new_actions(world, session_id, run_id, new or [approval()], expiry_seconds)


async def run_state(world: World, run_id: str) -> str:
    state: str = (await world.get(f"/v1/runs/{run_id}")).json()["state"]
    return state


async def jobs_of(world: World, run_id: str) -> int:
    ((count,),) = await world.fetch("SELECT count(*) FROM run_jobs WHERE run_id = %s", run_id)
    return int(count)

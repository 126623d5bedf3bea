"""SQL of model pauses and limits. The decisions are in db/functions/model_pauses.sql and model_limits.sql."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from msgspec import Struct
from psycopg.types.json import Jsonb

from quarterdeck.db.database import Connection
from quarterdeck.db.records import fetch_value

_COLUMNS = "model, reason, refused, probe_run_id, until <= now()"
_READ = f"SELECT {_COLUMNS} FROM model_pauses WHERE model = ANY (%s)"  # noqa: S608  built from constants
_RELEASE = f"SELECT {_COLUMNS} FROM release_waiting_runs(%s, %s, %s)"  # noqa: S608  built from constants
_PAUSE = "SELECT pause_model(%s, %s, %s, %s, %s, %s, %s)"
_ANNOUNCE = "SELECT announce_model_pause(%s, %s, %s)"
_TRY = "SELECT try_paused_model(%s, %s, %s)"
_RESUME = "SELECT resume_model(%s, %s)"
_BEGIN_REQUEST = "SELECT begin_model_request(%s, %s, %s, %s, %s, %s)"
_END_REQUEST = "SELECT end_model_request(%s, %s, %s, %s, %s)"

# As the setting model.limits.
Limits = Mapping[str, Mapping[str, int]]


class Pause(Struct, frozen=True):
    reason: str
    # Otherwise it failed, and is asked if there is no other model.
    refused: bool
    # The run that tries whether requests are answered again.
    probe_run_id: UUID | None = None
    is_over: bool = False


async def release(
    connection: Connection, probe_seconds: float, max_run_seconds: float, limits: Limits
) -> dict[str, Pause]:
    """Gives jobs to the runs that need not wait any longer, and returns the pauses."""
    return await _pauses(connection, _RELEASE, (probe_seconds, max_run_seconds, Jsonb(limits)))


async def read(connection: Connection, models: Sequence[str]) -> dict[str, Pause]:
    return await _pauses(connection, _READ, (list(models),))


async def _pauses(connection: Connection, query: str, values: tuple[Any, ...]) -> dict[str, Pause]:
    rows = await (await connection.execute(query, values)).fetchall()
    return {model: Pause(*columns) for model, *columns in rows}


async def pause(
    connection: Connection,
    model: str,
    run_id: UUID,
    reason: str,
    is_refusal: bool,
    asked_seconds: float,
    base_seconds: float,
    max_seconds: float,
) -> None:
    """`asked_seconds`: what the provider asks for."""
    values = (model, run_id, reason, is_refusal, asked_seconds, base_seconds, max_seconds)
    await connection.execute(_PAUSE, values)


async def announce(connection: Connection, model: str, reason: str, seconds: float) -> None:
    await connection.execute(_ANNOUNCE, (model, reason, seconds))


async def try_model(connection: Connection, model: str, run_id: UUID, probe_seconds: float) -> bool:
    """Whether the run is the one that tries."""
    return bool(await fetch_value(connection, _TRY, (model, run_id, probe_seconds)))


async def resume(connection: Connection, model: str, run_id: UUID) -> None:
    await connection.execute(_RESUME, (model, run_id))


async def begin_request(
    connection: Connection,
    run_id: UUID,
    workspace_id: UUID,
    attempt: int,
    model: str,
    tokens: int,
    limits: Limits,
) -> bool:
    """False: the run has to wait for its turn."""
    values = (run_id, workspace_id, attempt, model, tokens, Jsonb(limits))
    return bool(await fetch_value(connection, _BEGIN_REQUEST, values))


async def end_request(
    connection: Connection, run_id: UUID, attempt: int, model: str, tokens: int, limits: Limits
) -> None:
    await connection.execute(_END_REQUEST, (run_id, attempt, model, tokens, Jsonb(limits)))

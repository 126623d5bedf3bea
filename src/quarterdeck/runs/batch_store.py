"""The rows of batches and of the requests in them. See also db/functions/model_batches.sql."""

from datetime import datetime
from uuid import UUID

from msgspec import Struct
from psycopg.types.json import Jsonb

from quarterdeck.db.database import Connection
from quarterdeck.db.records import fetch_bool, fetch_record, fetch_records
from quarterdeck.models.model import BatchHandle, EncodedRequest, Step

# The run's earlier request is spent.
_ASK = """
INSERT INTO batch_requests (run_id, step, model, batch_group, body) VALUES (%s, %s, %s, %s, %s)
ON CONFLICT (run_id) DO UPDATE SET
    step = excluded.step, model = excluded.model, batch_group = excluded.batch_group, body = excluded.body,
    batch_id = NULL, result = NULL, failure = NULL, created_at = now()
"""
_ANSWER = """
SELECT result, failure FROM batch_requests
WHERE run_id = %s AND step = %s AND (result IS NOT NULL OR failure IS NOT NULL)
"""
_TAKE = """
SELECT id, model, handle, cancelled, look_at, extract(epoch FROM now() - created_at)::float8 AS age_seconds
FROM take_model_batches(%s, %s, %s, %s, %s)
"""
_OPEN = """
SELECT q.run_id, q.step, q.batch_group, q.body, r.session_id, r.waits_for_batch_since IS NOT NULL AS is_waiting
FROM batch_requests q JOIN runs r ON r.id = q.run_id
WHERE q.batch_id = %s AND q.result IS NULL AND q.failure IS NULL ORDER BY q.created_at, q.run_id
"""
_LOOK_AGAIN = """
UPDATE model_batches SET look_at = now() + make_interval(secs => %s), cancelled = cancelled OR %s
WHERE id = %s AND look_at = %s
"""
_CREATED = """
UPDATE model_batches SET handle = %s, look_at = now() + make_interval(secs => %s)
WHERE id = %s AND (look_at = %s AND handle IS NULL OR handle = %s)
"""
_SENT = "UPDATE batch_requests SET body = NULL WHERE batch_id = %s"
_END = "DELETE FROM model_batches WHERE id = %s AND (handle IS NULL) = %s"
_SET_ANSWER = """
UPDATE batch_requests SET result = %s, failure = %s, body = NULL
WHERE run_id = %s AND batch_id = %s
"""
_RELEASE = """
UPDATE runs
SET waits_for_batch_since = NULL, updated_at = clock_timestamp(),
    waited_seconds = waited_seconds
        + greatest(extract(epoch FROM clock_timestamp() - waits_for_batch_since)::float8, 0)
WHERE id = %s AND waits_for_batch_since IS NOT NULL
  AND EXISTS (
      SELECT FROM batch_requests q JOIN model_batches b ON b.id = q.batch_id
      WHERE q.run_id = runs.id AND b.id = %s AND (b.handle IS NULL) = %s
  )
RETURNING true
"""
_FORGET = """
DELETE FROM batch_requests q WHERE q.run_id = %s AND q.batch_id = %s AND q.result IS NULL AND q.failure IS NULL
  AND NOT EXISTS (SELECT FROM runs r WHERE r.id = q.run_id AND r.waits_for_batch_since IS NOT NULL)
"""
_ADD_USAGE = """
WITH used AS (
    UPDATE runs SET input_tokens = input_tokens + %(input)s, cached_tokens = cached_tokens + %(cached)s,
        cache_write_tokens = cache_write_tokens + %(cache_write)s, output_tokens = output_tokens + %(output)s,
        cost_usd = coalesce(cost_usd + %(cost)s::numeric, cost_usd, %(cost)s::numeric)
    WHERE id = %(run)s RETURNING id, session_id, workspace_id, api_key_id
)
SELECT add_usage(id, session_id, workspace_id, api_key_id, %(model)s, %(input)s, %(cached)s, %(cache_write)s,
                 %(output)s, %(cost)s)
FROM used
"""
# A worker looks after the batch at once: it may be cancelled. Not while it is being created.
_LEAVE = """
UPDATE model_batches SET look_at = now()
WHERE handle IS NOT NULL AND id = (SELECT batch_id FROM batch_requests WHERE run_id = %s)
"""
# With a batch that has no handle, it may be on its way to the provider, which will want to be paid.
_DELETE_SPENT = """
DELETE FROM batch_requests
WHERE run_id = %s AND (batch_id IS NULL OR result IS NOT NULL OR failure IS NOT NULL)
"""


class StoredAnswer(Struct, frozen=True):
    result: str | None
    failure: str | None


class TakenBatch(Struct, frozen=True):
    id: UUID
    model: str
    # None: it is to be created.
    handle: BatchHandle | None
    cancelled: bool
    # Until then it is the caller's.
    look_at: datetime
    age_seconds: float


class OpenRequest(Struct, frozen=True):
    run_id: UUID
    step: int
    batch_group: str
    # None: it was sent.
    body: str | None
    session_id: UUID
    # False: the run has ended.
    is_waiting: bool

    @property
    def custom_id(self) -> str:
        return custom_id(self.run_id, self.step)

    @property
    def encoded(self) -> EncodedRequest:
        assert self.body is not None, "it is kept until it is sent"
        return EncodedRequest(self.custom_id, self.batch_group, self.body)


def custom_id(run_id: UUID, step: int) -> str:
    """Names the request in its batch. Anthropic takes at most 64 letters, digits and hyphens."""
    return f"{run_id}-{step}"


async def ask(connection: Connection, run_id: UUID, step: int, model: str, request: EncodedRequest) -> None:
    await connection.execute(_ASK, (run_id, step, model, request.group, request.body))


async def answer(connection: Connection, run_id: UUID, step: int) -> StoredAnswer | None:
    """None: the run has not asked for this step by a batch."""
    return await fetch_record(connection, StoredAnswer, _ANSWER, (run_id, step))


async def take(
    connection: Connection,
    collect_seconds: float,
    max_requests: int,
    max_bytes: int,
    lease_seconds: float,
    max_batches: int,
) -> list[TakenBatch]:
    """Batches that the caller shall look after until the lease ends."""
    values = (collect_seconds, max_requests, max_bytes, lease_seconds, max_batches)
    return await fetch_records(connection, TakenBatch, _TAKE, values)


async def open_requests(connection: Connection, batch_id: UUID) -> list[OpenRequest]:
    return await fetch_records(connection, OpenRequest, _OPEN, (batch_id,))


async def look_again(connection: Connection, batch: TakenBatch, pause_seconds: float, cancelled: bool) -> None:
    """Leaves the batch to any worker after the pause."""
    await connection.execute(_LOOK_AGAIN, (pause_seconds, cancelled, batch.id, batch.look_at))


async def created(connection: Connection, batch: TakenBatch, handle: BatchHandle, pause_seconds: float) -> bool:
    """False: the lease has ended, and another worker has taken the batch."""
    values = (Jsonb(handle), pause_seconds, batch.id, batch.look_at, Jsonb(handle))
    if (await connection.execute(_CREATED, values)).rowcount == 0:
        return False
    await connection.execute(_SENT, (batch.id,))
    return True


async def end(connection: Connection, batch: TakenBatch) -> None:
    """Unless another worker has created it meanwhile."""
    await connection.execute(_END, (batch.id, batch.handle is None))


async def set_answer(connection: Connection, batch_id: UUID, run_id: UUID, answer: StoredAnswer) -> None:
    await connection.execute(_SET_ANSWER, (answer.result, answer.failure, run_id, batch_id))


async def release(connection: Connection, batch: TakenBatch, run_id: UUID) -> bool:
    """False: the run has ended, or another worker has created the batch meanwhile."""
    return await fetch_bool(connection, _RELEASE, (run_id, batch.id, batch.handle is None))


async def forget(connection: Connection, batch_id: UUID, run_id: UUID) -> bool:
    """Of a run that has ended. False: it was forgotten before."""
    return (await connection.execute(_FORGET, (run_id, batch_id))).rowcount > 0


async def add_usage(connection: Connection, run_id: UUID, model: str, step: Step) -> None:
    values = {
        "run": run_id,
        "model": model,
        "input": step.input_tokens,
        "cached": step.cached_tokens,
        "cache_write": step.cache_write_tokens,
        "output": step.output_tokens,
        "cost": step.cost_usd,
    }
    await connection.execute(_ADD_USAGE, values)


async def leave(connection: Connection, run_id: UUID) -> None:
    """The run has ended. What it asked for is kept as long as the provider may answer: its cost is counted."""
    await connection.execute(_LEAVE, (run_id,))
    await connection.execute(_DELETE_SPENT, (run_id,))

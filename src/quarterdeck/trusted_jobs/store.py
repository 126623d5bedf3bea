"""SQL for trusted jobs and their keys."""

from datetime import datetime
from uuid import UUID

from msgspec import Struct
from psycopg.types.json import Jsonb

from quarterdeck.core.secrets import Secret
from quarterdeck.db.database import Connection
from quarterdeck.db.records import Records, fetch_record, fetch_records, fetch_value
from quarterdeck.trusted_jobs.model import CreateTrustedJobBody, TrustedJobBody


class NamedJob(Struct, frozen=True):
    id: UUID
    name: str


class TrustedJob(Struct, frozen=True):
    """What an exchange has to know."""

    workspace_id: UUID
    skill_id: UUID
    name: str
    created_by: UUID
    issuer: str
    claims: dict[str, str]


_JOBS = Records(
    TrustedJobBody,
    table="trusted_jobs",
    columns="r.id, r.name, r.issuer, r.claims, r.skill_id, r.last_used_at, actor(u) AS created_by",
    joins="JOIN users u ON u.id = r.created_by",
)
get, page = _JOBS.get, _JOBS.page
_ADD = """
INSERT INTO trusted_jobs (id, workspace_id, skill_id, name, issuer, claims, created_by)
SELECT %s, workspace_id, id, %s, %s, %s, %s FROM skills WHERE workspace_id = %s AND id = %s FOR KEY SHARE
"""
_DELETE = "DELETE FROM trusted_jobs WHERE workspace_id = %s AND id = %s"
_OF_USER = "SELECT id, name FROM trusted_jobs WHERE workspace_id = %s AND created_by = %s"
# Only while the person may do what the job does.
_IN_FORCE = """
SELECT t.workspace_id, t.skill_id, t.name, t.created_by, t.issuer, t.claims
FROM trusted_jobs t
JOIN members m ON m.workspace_id = t.workspace_id AND m.user_id = t.created_by AND m.ended_at IS NULL
WHERE t.id = %s AND 'skill.manage' = ANY (permissions_of(m.role))
"""
_ADD_KEY = """
INSERT INTO job_keys (secret_hash, prefix, trusted_job_id, expires_at)
SELECT %s, %s, id, clock_timestamp() + make_interval(secs => %s) FROM trusted_jobs WHERE id = %s
RETURNING expires_at
"""
_DELETE_EXPIRED_KEYS = "DELETE FROM job_keys WHERE trusted_job_id = %s AND expires_at < clock_timestamp()"


async def add(
    connection: Connection,
    trusted_job_id: UUID,
    workspace_id: UUID,
    skill_id: UUID,
    user_id: UUID,
    body: CreateTrustedJobBody,
) -> None:
    """Nothing, if the skill is being deleted."""
    values = (trusted_job_id, body.name, body.issuer, Jsonb(body.claims), user_id, workspace_id, skill_id)
    await connection.execute(_ADD, values)


async def delete(connection: Connection, workspace_id: UUID, trusted_job_id: UUID) -> bool:
    return (await connection.execute(_DELETE, (workspace_id, trusted_job_id))).rowcount == 1


async def of_user(connection: Connection, workspace_id: UUID, user_id: UUID) -> list[NamedJob]:
    return await fetch_records(connection, NamedJob, _OF_USER, (workspace_id, user_id))


async def in_force(connection: Connection, trusted_job_id: UUID) -> TrustedJob | None:
    return await fetch_record(connection, TrustedJob, _IN_FORCE, (trusted_job_id,))


async def add_key(connection: Connection, trusted_job_id: UUID, secret: Secret, life_seconds: float) -> datetime | None:
    """Returns when the key expires. None: the job is not trusted any more."""
    await connection.execute(_DELETE_EXPIRED_KEYS, (trusted_job_id,))
    return await fetch_value(connection, _ADD_KEY, (secret.hash, secret.prefix, life_seconds, trusted_job_id))

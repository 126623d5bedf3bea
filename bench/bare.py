"""A server that does the least: it reads what is sent, asks the database the same, and answers with nothing.

Nothing of ours is in it on purpose, neither statements nor pool nor server: a ceiling must not move with what is
measured against it.
"""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

from psycopg.types.json import Jsonb
from psycopg_pool import AsyncConnectionPool
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bench.server import Server, free_port, started, until_up
from quarterdeck.core.ids import HIGHEST_ID
from quarterdeck.core.settings import DatabaseSettings
from quarterdeck.db.database import connection_options

_URL = "BENCH_DATABASE_URL"
_PAGE = 50
_KEYS = """
SELECT k.id, k.label, k.prefix, k.permissions, k.expires_at, k.last_used_at, k.revoked_at,
       u.id, u.display_name, u.email
FROM api_keys k JOIN users u ON u.id = k.created_by
WHERE k.workspace_id = %s AND k.id <= %s ORDER BY k.id DESC LIMIT %s
"""
_TOUCH_BLOB = """
INSERT INTO blobs (sha256, generation, bytes) VALUES (%s, uuidv7(), %s)
ON CONFLICT (sha256) DO UPDATE SET touched_at = clock_timestamp() RETURNING generation
"""
_NEXT_VERSION = """
UPDATE skills SET latest_version = latest_version + 1, revision = revision + 1
WHERE id = %s RETURNING workspace_id, latest_version, created_by
"""
_ADD_VERSION = """
INSERT INTO skill_versions (id, skill_id, version, bundle_sha256, bundle_bytes, frontmatter, manifest, created_by)
VALUES (uuidv7(), %s, %s, %s, %s, %s, %s, %s) RETURNING id
"""
_ADD_AUDIT_EVENT = """
INSERT INTO audit_events (id, workspace_id, action, object_type, object_id, user_id, detail)
VALUES (uuidv7(), %s, 'push_skill_version', 'skill_version', %s, %s, %s)
"""
# What the manifest and the frontmatter of a small bundle weigh.
_FRONTMATTER = Jsonb({"name": "bench", "description": "A bundle as most are."})
_MANIFEST = Jsonb(
    {
        "files": [{"path": f"references/{number}.md", "bytes": 1200, "sha256": "0" * 64} for number in range(4)],
        "unpacked_bytes": 4800,
        "archive_sha256": "0" * 64,
    }
)


@asynccontextmanager
async def bare(server: Server) -> AsyncIterator[int]:
    """The port of one process on the same database."""
    port = free_port()
    command = [sys.executable, "-m", "granian", "--interface=asgi", "--loop=uvloop", "--http=1", "--no-ws"]
    command += ["--log-level=warning", f"--port={port}", "--factory", "bench.bare:make_app"]
    environment = os.environ | {_URL: server.database_url}
    with started(command, environment, server.folder / "bare.log") as process:
        await until_up(port, process, "/nothing")
        yield port


def make_app() -> Starlette:
    settings = DatabaseSettings()
    pool = AsyncConnectionPool(
        os.environ[_URL],
        kwargs={"autocommit": True, "options": connection_options(settings)},
        min_size=settings.pool_connections,
        max_size=settings.pool_connections,
        open=False,
    )

    @asynccontextmanager
    async def opened(_: Starlette) -> AsyncIterator[None]:
        await pool.open()
        yield
        await pool.close()

    async def nothing(_: Request) -> Response:
        return Response()

    async def keys(request: Request) -> Response:
        async with pool.connection() as connection:
            values = (UUID(request.path_params["workspace_id"]), HIGHEST_ID, _PAGE + 1)
            await (await connection.execute(_KEYS, values)).fetchall()
        return Response()

    async def push(request: Request) -> Response:
        """The two commits of a push: the archive's row first, then its version."""
        size, skill_id, sha256 = len(await request.body()), UUID(request.path_params["skill_id"]), os.urandom(32)
        async with pool.connection() as connection:
            await connection.execute(_TOUCH_BLOB, (sha256, size))
            async with connection.transaction():
                cursor = await connection.execute(_NEXT_VERSION, (skill_id,))
                ((workspace_id, version, user_id),) = await cursor.fetchall()
                values = (skill_id, version, sha256, size, _FRONTMATTER, _MANIFEST, user_id)
                ((version_id,),) = await (await connection.execute(_ADD_VERSION, values)).fetchall()
                detail = Jsonb({"skill_id": str(skill_id), "version": version})
                await connection.execute(_ADD_AUDIT_EVENT, (workspace_id, version_id, user_id, detail))
        return Response()

    routes = [
        Route("/nothing", nothing),
        Route("/keys/{workspace_id}", keys),
        Route("/push/{skill_id}", push, methods=["POST"]),
    ]
    return Starlette(routes=routes, lifespan=opened)

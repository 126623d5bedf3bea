"""What a worker reads of a session's skills before a run: not their manifests, which can be megabytes each."""

import tracemalloc

import psycopg
import pytest
from psycopg import AsyncConnection

from quarterdeck.skills import service as skills
from tests.world import AS_OWNER

SKILLS, FILES = 20, 10_000
_FILL = (
    "INSERT INTO users (id, email) VALUES (gen_random_uuid(), 'a@example.com')",
    "INSERT INTO workspaces (id, name, owner_id) SELECT gen_random_uuid(), 'x', id FROM users",
    "INSERT INTO sessions (id, workspace_id, created_by) SELECT id, id, owner_id FROM workspaces",
    "INSERT INTO blobs (sha256, generation, bytes) VALUES (sha256('x'), gen_random_uuid(), 1)",
    "INSERT INTO skills (id, workspace_id, name, created_by, latest_version)"
    f" SELECT gen_random_uuid(), id, 'x' || n, owner_id, 1 FROM workspaces, generate_series(1, {SKILLS}) n",
    "INSERT INTO skill_versions"
    " (id, skill_id, version, bundle_sha256, bundle_bytes, frontmatter, manifest, created_by)"
    ' SELECT gen_random_uuid(), s.id, 1, sha256(\'x\'), 1, \'{"name": "a", "description": "b"}\', m, s.created_by'
    " FROM skills s, (SELECT json_build_object('files', json_agg(json_build_object("
    "   'path', repeat('x', 80) || n, 'bytes', n, 'sha256', repeat('0', 64), 'executable', false)),"
    f"   'unpacked_bytes', 1, 'archive_sha256', repeat('0', 64)) AS m FROM generate_series(1, {FILES}) n) AS made",
    "INSERT INTO session_skills (session_id, position, skill_id)"
    " SELECT x.id, row_number() OVER (), s.id FROM sessions x, skills s",
)


@pytest.mark.long
async def test_many_large_skills_cost_little_memory(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True, options=AS_OWNER) as owner:
        for statement in _FILL:
            owner.execute(statement.encode())
        ((session_id, workspace_id),) = owner.execute("SELECT id, workspace_id FROM sessions").fetchall()
    async with await AsyncConnection.connect(database_url, autocommit=True, options=AS_OWNER) as connection:
        tracemalloc.start()
        try:
            found = await skills.of_session(connection, session_id)
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        files = await skills.files_of(connection, workspace_id, found[0].skill_id, found[0].version)
    assert [(skill.name, skill.description) for skill in found] == [("a", "b")] * SKILLS
    assert len(files) == FILES
    assert peak_bytes < 1024 * 1024

"""Migration 0024: existing duplicate names get a suffix before names are made unique."""

from importlib import resources

import psycopg

from tests.world import AS_OWNER

_BEFORE = """
DROP INDEX skills_name; DROP INDEX session_skills_skill; ALTER TABLE audit_events DROP COLUMN object_name;
INSERT INTO users (id, email) VALUES ('00000000-0000-0000-0000-000000000001', 'a@example.com');
INSERT INTO workspaces (id, name, owner_id)
SELECT gen_random_uuid(), w, '00000000-0000-0000-0000-000000000001' FROM unnest(ARRAY['one', 'two']) w
"""
_ADD = """
INSERT INTO skills (id, workspace_id, name, created_by, archived_at)
SELECT gen_random_uuid(), w.id, n.name, owner_id, CASE WHEN n.archived THEN now() END
FROM workspaces w, unnest(%s::text[], %s::bool[]) AS n (name, archived) WHERE w.name = %s
"""
_NAMES = """
SELECT s.name, s.archived_at IS NOT NULL, s.revision FROM skills s JOIN workspaces w ON w.id = s.workspace_id
WHERE w.name = %s ORDER BY 2, 1
"""


def test_the_migration_renames_duplicates(database_url: str) -> None:
    script = resources.files("quarterdeck.db") / "migrations" / "0024_skill_names.sql"
    with psycopg.connect(database_url, autocommit=True, options=AS_OWNER) as owner:
        owner.execute(_BEFORE)
        names = ["a", "a", "a", "a-2", "A", "b", "x" * 200, "x" * 200]
        owner.execute(_ADD, ([*names, "a", "c", "c"], [False] * len(names) + [True] * 3, "one"))
        owner.execute(_ADD, (["a"], [False], "two"))
        with owner.transaction():
            owner.execute(script.read_bytes())
        renamed = dict.fromkeys(["a-3", "a-4", "x" * 198 + "-2"], 2)
        kept = dict.fromkeys(["a", "a-2", "A", "b", "x" * 200], 1)
        found = owner.execute(_NAMES, ("one",)).fetchall()
        assert {name: revision for name, archived, revision in found if not archived} == renamed | kept
        assert [(name, revision) for name, archived, revision in found if archived] == [("a", 1), ("c", 1), ("c", 1)]
        assert owner.execute(_NAMES, ("two",)).fetchall() == [("a", False, 1)]

-- Names are unique among the active skills of a workspace, skills can be deleted, and audit events have the name of
-- their object. A process of the previous release that creates a second skill of a name gets an internal error.

-- Nobody adds a skill between the renaming and the index.
LOCK TABLE skills IN SHARE ROW EXCLUSIVE MODE;

-- The oldest skill of a name keeps it; the others get "-2", "-3" and so on. Names have at most 200 characters.
DO $$
DECLARE
    duplicate record;
    number bigint;
    new_name text;
BEGIN
    FOR duplicate IN
        SELECT id, workspace_id, name, place
        FROM (
            SELECT id, workspace_id, name, row_number() OVER (PARTITION BY workspace_id, name ORDER BY id) AS place
            FROM skills WHERE archived_at IS NULL
        ) AS numbered
        WHERE place > 1 ORDER BY id
    LOOP
        number := duplicate.place;
        LOOP
            new_name := left(duplicate.name, 200 - length('-' || number)) || '-' || number;
            EXIT WHEN NOT EXISTS (
                SELECT FROM skills
                WHERE workspace_id = duplicate.workspace_id AND name = new_name AND archived_at IS NULL
            );
            number := number + 1;
        END LOOP;
        UPDATE skills SET name = new_name, revision = revision + 1 WHERE id = duplicate.id;
    END LOOP;
END
$$;

CREATE UNIQUE INDEX skills_name ON skills (workspace_id, name) WHERE archived_at IS NULL;

-- Whether a session uses a skill is asked before the skill is deleted, and again by the foreign key.
CREATE INDEX session_skills_skill ON session_skills (skill_id);

-- NULL: an object without a name, or an event of an earlier release.
ALTER TABLE audit_events ADD COLUMN object_name text;

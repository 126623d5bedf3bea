-- Each list of skills by an index of its own: of many, the few that are archived are found without looking at the others.
CREATE INDEX skills_active ON skills (workspace_id, id) WHERE archived_at IS NULL;
CREATE INDEX skills_archived ON skills (workspace_id, id) WHERE archived_at IS NOT NULL;

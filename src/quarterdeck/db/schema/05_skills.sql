CREATE TABLE skills (
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL REFERENCES workspaces,
    name text NOT NULL,
    latest_version integer NOT NULL DEFAULT 0,
    -- The version for sessions that name none. NULL: the latest.
    default_version integer,
    revision integer NOT NULL DEFAULT 1,
    archived_at timestamptz,
    created_by uuid NOT NULL REFERENCES users
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX skills_page ON skills (workspace_id, id);
-- An index for each list: a few archived skills are found without reading many active ones.
CREATE INDEX skills_active ON skills (workspace_id, id) WHERE archived_at IS NULL;
CREATE INDEX skills_archived ON skills (workspace_id, id) WHERE archived_at IS NOT NULL;
CREATE UNIQUE INDEX skills_name ON skills (workspace_id, name) WHERE archived_at IS NULL;

-- json, not jsonb: the response of a later read has the same text as the response of the push.
CREATE TABLE skill_versions (
    id uuid PRIMARY KEY,
    skill_id uuid NOT NULL REFERENCES skills,
    version integer NOT NULL CHECK (version > 0),
    bundle_sha256 bytea NOT NULL REFERENCES blobs,
    bundle_bytes bigint NOT NULL,
    frontmatter json NOT NULL,
    manifest json NOT NULL,
    created_by uuid NOT NULL REFERENCES users,
    CONSTRAINT skill_versions_number UNIQUE (skill_id, version)
);
CREATE INDEX skill_versions_bundle ON skill_versions (bundle_sha256);
-- The contents of the files of a version. The manifest says which file has which; these rows keep them.
CREATE TABLE skill_version_contents (
    version_id uuid NOT NULL REFERENCES skill_versions,
    sha256 bytea NOT NULL REFERENCES blobs,
    PRIMARY KEY (version_id, sha256)
);
CREATE INDEX skill_version_contents_of_blob ON skill_version_contents (sha256);
ALTER TABLE skills ADD CONSTRAINT skills_default_version
    FOREIGN KEY (id, default_version) REFERENCES skill_versions (skill_id, version);

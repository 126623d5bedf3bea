-- Files: uploaded by people, attached to inputs, and in the folders of sessions. Their contents are in `blobs`.

-- Uploaded files.
CREATE TABLE files (
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL REFERENCES workspaces,
    name text NOT NULL,
    media_type text NOT NULL,
    sha256 bytea NOT NULL REFERENCES blobs,
    bytes bigint NOT NULL,
    created_by uuid NOT NULL REFERENCES users
);
CREATE INDEX files_of_blob ON files (sha256);

-- The files in the folder of a session.
CREATE TABLE session_files (
    -- No foreign key: see deleted_sessions.
    session_id uuid NOT NULL,
    path text COLLATE "C" NOT NULL,
    -- A folder has a row only while it is empty.
    kind text NOT NULL CHECK (kind IN ('file', 'link', 'folder')),
    sha256 bytea REFERENCES blobs,
    bytes bigint NOT NULL,
    -- Permission bits.
    mode smallint NOT NULL CHECK (mode BETWEEN 0 AND 511),
    -- Of a link: a relative path that stays inside the folder of the session.
    target text,
    modified_at timestamptz NOT NULL,
    PRIMARY KEY (session_id, path),
    CHECK ((kind = 'file') = (sha256 IS NOT NULL)),
    CHECK ((kind = 'link') = (target IS NOT NULL))
);
CREATE INDEX session_files_of_blob ON session_files (sha256) WHERE sha256 IS NOT NULL;

-- What was attached to the inputs of a session. The events name the contents; these rows keep them.
CREATE TABLE session_attachments (
    session_id uuid NOT NULL,
    sha256 bytea NOT NULL REFERENCES blobs,
    PRIMARY KEY (session_id, sha256)
);
CREATE INDEX session_attachments_of_blob ON session_attachments (sha256);

-- Blobs: contents by hash, of skill archives and files. The bytes are in the blob store.

-- The row is touched before its content is stored, and others refer to it. The sweep of unused contents locks it, so it
-- cannot delete a content that a push has just found. The generation is part of the name in the store: the sweep never
-- deletes what a later push of the same content writes.
CREATE TABLE blobs (
    sha256 bytea PRIMARY KEY CHECK (octet_length(sha256) = 32),
    generation uuid NOT NULL,
    bytes bigint NOT NULL,
    touched_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX blobs_touched ON blobs (touched_at);

-- Contents that have lost their row and are still to be deleted from the store.
CREATE TABLE condemned_blobs (
    sha256 bytea NOT NULL,
    generation uuid NOT NULL,
    PRIMARY KEY (sha256, generation)
);

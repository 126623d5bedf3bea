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

-- Archives whose files can be read one by one. The row is added before the blocks are stored, and gets its index when
-- they are: a crash between the two leaves a row without an index, by which the sweep finds the blocks. The id is the
-- name of the blocks in the store and is used once.
CREATE TABLE bundle_blocks (
    id uuid PRIMARY KEY,
    bundle_sha256 bytea NOT NULL,
    bundle_generation uuid NOT NULL,
    block_index bytea,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX bundle_blocks_bundle ON bundle_blocks (bundle_sha256, bundle_generation);

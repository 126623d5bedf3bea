-- Stored bundles whose files can be read one by one. The row is added before the blocks are stored, and gets its index
-- when they are: a crash between the two leaves a row without an index, by which the sweep finds the blocks. The id is
-- the name of the blocks in the store and is used once.
CREATE TABLE bundle_blocks (
    id uuid PRIMARY KEY,
    bundle_sha256 bytea NOT NULL,
    bundle_generation uuid NOT NULL,
    block_index bytea,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX bundle_blocks_bundle ON bundle_blocks (bundle_sha256, bundle_generation);

-- Whether a row refers to this content.
CREATE OR REPLACE FUNCTION is_blob_used(blob_sha256 bytea) RETURNS boolean
LANGUAGE sql STABLE
AS $$
    SELECT EXISTS (SELECT FROM skill_versions v WHERE v.bundle_sha256 = blob_sha256)
        OR EXISTS (SELECT FROM skill_version_contents c WHERE c.sha256 = blob_sha256)
        OR EXISTS (SELECT FROM files f WHERE f.sha256 = blob_sha256)
        OR EXISTS (SELECT FROM session_files f WHERE f.sha256 = blob_sha256)
        OR EXISTS (SELECT FROM session_attachments a WHERE a.sha256 = blob_sha256)
$$;

-- Attachments of inputs: uploaded files that become part of a session. Callers hold the lock of the session.
--
-- Two steps, so that an input that is refused leaves nothing behind: find_attachments() decides and writes nothing,
-- store_attachments() stores what was found, together with the input.

-- Whether a content can lie at this path: nothing is there, or the same content.
CREATE OR REPLACE FUNCTION is_path_free(target_session_id uuid, wanted_path text, content_sha256 bytea) RETURNS boolean
LANGUAGE sql STABLE
AS $$
    SELECT NOT EXISTS (
        SELECT FROM session_files f
        WHERE f.session_id = target_session_id AND f.path = wanted_path AND f.sha256 IS DISTINCT FROM content_sha256
    ) AND NOT EXISTS (
        -- A folder. '0' is the character after '/'.
        SELECT FROM session_files f
        WHERE f.session_id = target_session_id AND f.path >= wanted_path || '/' AND f.path < wanted_path || '0'
    )
$$;

-- The folder for attachments. A tool may have put a file or a link in its place.
CREATE OR REPLACE FUNCTION attachments_folder(target_session_id uuid) RETURNS text
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    folder text := 'attachments';
    number integer := 1;
BEGIN
    WHILE EXISTS (
        SELECT FROM session_files f
        WHERE f.session_id = target_session_id AND f.path = folder AND f.kind <> 'folder'
    ) LOOP
        number := number + 1;
        folder := 'attachments-' || number;
    END LOOP;
    RETURN folder;
END;
$$;

-- The beginning of a text, cut between two characters.
CREATE OR REPLACE FUNCTION first_bytes(content text, max_bytes integer) RETURNS text
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    WHILE octet_length(content) > max_bytes LOOP
        content := left(content, -1);
    END LOOP;
    RETURN content;
END;
$$;

-- A path for a content: FOLDER/NAME.EXT, or FOLDER/NAME-2.EXT and so on while another content has that path.
-- `chosen`: paths of the same input, with their contents in hex.
CREATE OR REPLACE FUNCTION attachment_path(
    target_session_id uuid, folder text, file_name text, content_sha256 bytea, chosen jsonb
)
RETURNS text
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    -- No hidden files, and no `.` or `..`.
    name text := regexp_replace(regexp_replace(file_name, '[\u0001-\u001f\u007f/]', '_', 'g'), '^\.+', '');
    extension text := coalesce(substring(name FROM '[^.](\.[^.]{1,20})$'), '');
    stem text := left(name, length(name) - length(extension));
    ending text;
    path text;
BEGIN
    stem := CASE stem WHEN '' THEN 'file' ELSE stem END;
    -- After 20 contents with one name the search would take longer and longer.
    FOR number IN 1 .. 22 LOOP
        ending := CASE
            WHEN number = 1 THEN ''
            WHEN number <= 20 THEN '-' || number
            WHEN number = 21 THEN '-' || left(encode(content_sha256, 'hex'), 16)
            ELSE '-' || gen_random_uuid()
        END || extension;
        -- File systems allow 255 bytes. An ending has at most 118, so the stem keeps some.
        path := folder || '/' || first_bytes(stem, 255 - octet_length(ending)) || ending;
        EXIT WHEN coalesce(chosen->>path = encode(content_sha256, 'hex'), true)
            AND is_path_free(target_session_id, path, content_sha256);
    END LOOP;
    RETURN path;
END;
$$;

-- The files of an input as the event input.accepted shows them, or why the input is refused. The rows of the files stay
-- locked, so that their contents cannot be deleted before store_attachments() refers to them.
CREATE OR REPLACE FUNCTION find_attachments(
    target_session_id uuid,
    files_workspace_id uuid,     -- NULL: the caller sees no files
    request jsonb                -- AttachmentRequest of runs/model.py
)
RETURNS TABLE (refusal text, detail jsonb, attachments jsonb)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    session record;
    folder text;
    file_id uuid;
    file record;
    path text;
    chosen jsonb := '{}';
    used record;
BEGIN
    attachments := '[]';
    -- As the session shows it: the next run uses the agent as it is now.
    SELECT CASE WHEN agent ? 'sandbox' THEN agent->'sandbox' <> 'null' ELSE s.sandbox IS NOT NULL END AS has_sandbox,
           coalesce(CASE WHEN agent ? 'model' THEN agent->>'model' ELSE s.model END, request->>'default_model') AS model
    INTO session FROM sessions s CROSS JOIN LATERAL values_of_agent(s.id) AS agent WHERE s.id = target_session_id;
    IF session.has_sandbox THEN
        folder := attachments_folder(target_session_id);
    END IF;
    FOR file_id IN SELECT value::uuid FROM jsonb_array_elements_text(request->'file_ids') LOOP
        SELECT f.name, f.media_type, f.bytes, f.sha256 INTO file
        FROM files f WHERE f.id = file_id AND f.workspace_id = files_workspace_id FOR KEY SHARE;
        IF NOT FOUND THEN
            refusal := 'unknown_file';
            detail := jsonb_build_object('file_id', file_id);
            RETURN NEXT;
            RETURN;
        END IF;
        IF folder IS NULL AND NOT split_part(file.media_type, ';', 1) LIKE ANY (ARRAY(
            SELECT jsonb_array_elements_text(request->'media_types'->split_part(session.model, ':', 1))
        )) THEN
            refusal := 'unsupported_file';
            detail := jsonb_build_object('name', file.name, 'media_type', file.media_type, 'model', session.model);
            RETURN NEXT;
            RETURN;
        END IF;
        IF folder IS NOT NULL THEN
            path := attachment_path(target_session_id, folder, file.name, file.sha256, chosen);
            chosen := chosen || jsonb_build_object(path, encode(file.sha256, 'hex'));
        END IF;
        attachments := attachments || jsonb_build_object(
            'file_id', file_id, 'name', file.name, 'media_type', file.media_type, 'bytes', file.bytes,
            'sha256', encode(file.sha256, 'hex'), 'path', path
        );
    END LOOP;
    IF folder IS NOT NULL THEN
        SELECT count(*) AS files, coalesce(sum(f.bytes), 0) AS bytes INTO used FROM (
            SELECT s.path, s.bytes FROM session_files s WHERE s.session_id = target_session_id
            UNION
            SELECT a->>'path', (a->>'bytes')::bigint FROM jsonb_array_elements(attachments) AS a
        ) AS f;
        IF used.files > (request->>'files')::bigint OR used.bytes > (request->>'all_files_bytes')::bigint THEN
            refusal := 'session_files_full';
            detail := jsonb_build_object('files', used.files, 'bytes', used.bytes);
        END IF;
    END IF;
    RETURN NEXT;
END;
$$;

-- Keeps the contents for the session and makes them files of it, if they have a path.
CREATE OR REPLACE FUNCTION store_attachments(target_session_id uuid, attachments jsonb) RETURNS void
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
    INSERT INTO session_attachments (session_id, sha256)
    SELECT DISTINCT target_session_id, decode(a->>'sha256', 'hex') FROM jsonb_array_elements(attachments) AS a
    ON CONFLICT DO NOTHING;

    INSERT INTO session_files (session_id, path, kind, sha256, bytes, mode, modified_at)
    SELECT DISTINCT ON (a->>'path')
           target_session_id, a->>'path', 'file', decode(a->>'sha256', 'hex'), (a->>'bytes')::bigint, 420,
           clock_timestamp()
    FROM jsonb_array_elements(attachments) AS a WHERE a->>'path' IS NOT NULL
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
        -- Only empty folders have a row.
        DELETE FROM session_files f
        WHERE f.session_id = target_session_id AND f.kind = 'folder'
          AND f.path IN (SELECT split_part(a->>'path', '/', 1) FROM jsonb_array_elements(attachments) AS a);
        UPDATE sessions s SET files_revision = s.files_revision + 1 WHERE s.id = target_session_id;
    END IF;
END;
$$;

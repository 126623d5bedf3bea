-- Attachments whose names were longer than file systems allow: no worker could restore the folders of their sessions.

UPDATE session_files
SET path = split_part(path, '/', 1) || '/' || left(split_part(path, '/', 2), 50) || '-' || left(md5(path), 16)
WHERE path LIKE 'attachments%/%' AND octet_length(split_part(path, '/', 2)) > 255;

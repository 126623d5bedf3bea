"""The files of a session in the transactions of others: a tool call ends, an input brings attachments, a session is
forked or deleted. Each function is a part of its caller's transaction."""

from uuid import UUID

from quarterdeck.db.database import Connection
from quarterdeck.sandbox import manifest
from quarterdeck.sandbox.manifest import FileChanges, FileKind, PathConflict, StoredFile
from quarterdeck.session_files import store


async def apply_changes(connection: Connection, session_id: UUID, changes: FileChanges) -> int:
    """Stores the changes and returns the new revision. The caller holds the session's lock, and the contents are in the
    store. Raises PathConflict if a file and a folder would have the same path: an input may have added a file since
    the changes were made.

    A file that becomes a folder is deleted first. The row of an empty folder goes when a file is added to it, also if
    the changes do not say so."""
    manifest.check_changes(changes)
    if not changes.written and not changes.deleted:
        found = await store.revision(connection, session_id)
    else:
        if changes.deleted:
            await store.delete(connection, session_id, changes.deleted)
        if changes.written:
            await store.write(connection, session_id, changes.written)
            await _check_folders(connection, session_id, changes.written)
        found = await store.next_revision(connection, session_id)
    assert found is not None, "the session exists while its lock is held by a run or an input"
    return found


async def _check_folders(connection: Connection, session_id: UUID, written: list[StoredFile]) -> None:
    """A folder has a row only while it is empty; nothing else is at the path of a folder."""
    kinds = {file.path: file.kind for file in written}
    filled = await store.folders(connection, session_id, list(kinds))
    deleted = await store.delete(connection, session_id, [*filled, *manifest.parents_of_all(kinds)])
    if deleted - {FileKind.FOLDER}:
        raise PathConflict("A file would have the path of a folder.")


# For other packages, which use no store of this one.
keep_contents, read_manifest = store.keep_contents, store.manifest
revision, revisions, purge = store.revision, store.revisions, store.purge


async def copy_to_fork(connection: Connection, from_session: UUID, to_session: UUID) -> None:
    """For a fork: the files as they are now, and what keeps the contents of attachments. The contents are shared. One
    statement reads the files, so they are those of one revision."""
    if await store.copy_rows(connection, from_session, to_session):
        await store.next_revision(connection, to_session)


async def clear(connection: Connection, session_id: UUID) -> int:
    """Deletes all files in one statement, so that no run sees a part of them. Returns their number."""
    deleted = await store.delete_all(connection, session_id)
    if deleted:
        await store.next_revision(connection, session_id)
    return deleted

"""Operations on the files of a session, and what other features do with them in their transactions."""

from collections import deque
from collections.abc import Mapping
from typing import Annotated
from uuid import UUID

from msgspec import Meta, Struct

from quarterdeck.auth.access import Access, visible_session
from quarterdeck.core import errors
from quarterdeck.core.actors import Permission, Principal
from quarterdeck.core.call import Call
from quarterdeck.core.operation import PathPrefix, Query, operation
from quarterdeck.core.pages import PathPageRequest
from quarterdeck.db.database import Connection
from quarterdeck.sandbox import manifest
from quarterdeck.sandbox.manifest import FileChanges, FileKind, Manifest, ManifestFile, PathConflict, StoredFile
from quarterdeck.session_files import store
from quarterdeck.session_files.model import SessionFilePage

# Links among the files of a session. Pure functions, no I/O.

# The limit of Linux.
_LINKS = 40
# More than a path of 1,024 bytes needs. Links with long targets could keep a process busy otherwise.
_PARTS = 2_000


def follow_links(path: str, links: Mapping[str, str]) -> str | None:
    """The path without links, as the kernel would find it. `links`: the targets of all links, by path. None: it leaves
    the folder, or it has too many links or parts, such as links in a circle."""
    followed = 0
    found: list[str] = []
    parts = deque(path.split("/"))
    for _ in range(_PARTS):
        if not parts:
            return "/".join(found)
        part = parts.popleft()
        if part == "..":
            if not found:
                return None
            found.pop()
        elif part not in ("", "."):
            found.append(part)
        target = links.get("/".join(found))
        if target is not None:
            followed += 1
            if followed > _LINKS or target.startswith("/"):
                return None
            found.pop()
            parts.extendleft(reversed(target.split("/")))
    return None


class TitledManifest(Struct, frozen=True):
    title: str | None
    manifest: Manifest


class PrefixQuery(Query, frozen=True):
    prefix: Annotated[
        PathPrefix, Meta(description="Only files whose path begins with this. Empty: all.", examples=["report/"])
    ] = ""


@operation(
    summary="List the files of a session",
    description="Sorted by path. They are those that the last finished tool call and the last "
    "input have left: what a running call does is seen when the call has ended.",
    permission=Permission.WORKSPACE_READ,
    success="One page. next_cursor is null on the last page.",
    session_token=True,
)
async def list_session_files(
    access: Access, call: Call[None], session_id: UUID, request: PathPageRequest, query: PrefixQuery
) -> SessionFilePage:
    async def show(connection: Connection, _: Principal, __: UUID) -> SessionFilePage:
        items = await store.page(connection, session_id, request.after, query.prefix, request.limit + 1)
        is_last = len(items) <= request.limit
        items = items[: request.limit]
        return SessionFilePage(items, None if is_last else items[-1].path)

    lookup = visible_session(call, session_id)
    return await access.read(call, lookup, show)


async def find_session_file(access: Access, call: Call[None], session_id: UUID, path: str) -> ManifestFile:
    """The file at a path, or at the end of its links. Links are followed in the manifest only."""

    async def show(connection: Connection, _: Principal, __: UUID) -> ManifestFile:
        found = await store.get(connection, session_id, path)
        if found is None or found.kind is FileKind.LINK:
            target = follow_links(path, await store.links(connection, session_id))
            found = None if target is None else await store.get(connection, session_id, target)
        if found is None or found.kind is not FileKind.FILE:
            raise errors.not_found("file")
        return found

    lookup = visible_session(call, session_id)
    return await access.read(call, lookup, show)


async def read_session_files(access: Access, call: Call[None], session_id: UUID) -> TitledManifest:
    """One snapshot of all files."""

    async def show(connection: Connection, _: Principal, __: UUID) -> TitledManifest:
        title = await store.title(connection, session_id)
        manifest = errors.existing(await store.manifest(connection, session_id), "session")
        return TitledManifest(title, manifest)

    lookup = visible_session(call, session_id)
    return await access.read(call, lookup, show)


# The files of a session in the transactions of others: a tool call ends, an input brings attachments, a session is
# forked or deleted. Each function is a part of its caller's transaction.


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

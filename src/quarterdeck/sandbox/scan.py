"""Finds what changed in a folder. Links are never followed, and no file is stored with a content that it never had.

What cannot be stored (sockets, links that leave the folder, names that are no text) is removed, so that the folder
always has exactly the stored files, on every worker.
"""

import errno
import os
import secrets
import stat
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from quarterdeck.core.settings import SandboxSettings
from quarterdeck.sandbox.beneath import descriptor
from quarterdeck.sandbox.limit_watcher import MAX_DEPTH
from quarterdeck.sandbox.manifest import FileKind, InvalidPath, StoredFile, check_path, check_target
from quarterdeck.sandbox.model import Refusal
from quarterdeck.skills.model import shown

# The folder with the skills of the session, which are not session files.
RESERVED = "skills"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_SECONDS = 253_402_300_799
# The kernel's clock for files has a tick of up to 10 ms: two changes within one have the same time.
_TICK_NS = 20_000_000
# Removed files that a result names.
_NAMED = 5
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Signature(Struct, frozen=True):
    """If it is the same, so is the file. A process can set the time of modification, but not that of the change."""

    inode: int
    size: int
    modified_ns: int
    changed_ns: int
    mode: int


class Known(Struct, frozen=True):
    """A file as it was when it was last written or read by the worker."""

    file: StoredFile
    signature: Signature


class Found(Struct, frozen=True):
    path: str
    kind: FileKind
    signature: Signature
    target: str | None = None


class Scan(Struct):
    # Everything in the folder that can be stored, by path.
    found: dict[str, Found]
    # The first few that were removed because they cannot be stored, with the reason.
    removed: list[str]
    removed_count: int


class OutOfBounds(Refusal):
    """The call is undone: nothing of it is stored."""


def signature_of(status: os.stat_result) -> Signature:
    return Signature(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_mode)


def modified_at(signature: Signature) -> datetime:
    """In microseconds, as PostgreSQL stores it."""
    seconds, rest = divmod(signature.modified_ns, 1_000_000_000)
    return EPOCH + timedelta(seconds=min(max(seconds, 0), _MAX_SECONDS), microseconds=rest // 1000)


def is_unchanged(known: Known | None, found: Found, began_ns: int) -> bool:
    """`began_ns`: when the last change of the folder began. A file that was written just before may have been changed
    again within the same tick of the clock, so its content is compared."""
    return known is not None and known.signature == found.signature and known.signature.changed_ns + _TICK_NS < began_ns


def scan(folder: int, settings: SandboxSettings, owner: int, stopped: Callable[[], bool]) -> Scan:
    """Raises OutOfBounds as soon as the folder has more than a session may have. `owner`: the only user whose files are
    stored."""
    make_writable(folder)
    walk = _FolderScan(folder, settings, owner)
    while walk.folders:
        if stopped():
            raise InterruptedError
        walk.visit(walk.folders.pop())
    return walk.result


def _target(folder: int, name: str, path: str) -> str:
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError as fault:
        # EINVAL: it is no link any more.
        raise Changed(path) from fault


class _FolderScan:
    """Not recursive, and with one open folder at a time: folders can be nested deeply."""

    def __init__(self, root: int, settings: SandboxSettings, owner: int) -> None:
        self._root = root
        self._settings = settings
        self._owner = owner
        self._bytes = 0
        self._folders = 0
        self.result = Scan({}, [], 0)
        # To be visited.
        self.folders = [""]

    def visit(self, path: str) -> None:
        self._folders += 1
        if self._folders > self._settings.files:
            raise out_of_bounds(f"more than {self._settings.files} folders")
        with descriptor(open_parts(self._root, path)) as folder:
            is_empty, unwanted = True, []
            with os.scandir(folder) as entries:
                for entry in entries:
                    below = f"{path}/{entry.name}" if path else entry.name
                    if below == RESERVED or not self._take(folder, entry, below):
                        unwanted.append(entry.name)
                    else:
                        is_empty = False
            if unwanted:
                make_writable(folder)
            for name in unwanted:
                remove(folder, name)
            if is_empty and path:
                self._add(Found(path, FileKind.FOLDER, signature_of(os.fstat(folder))))

    def _take(self, folder: int, entry: os.DirEntry[str], path: str) -> bool:
        """False: it cannot be stored, and is to be removed."""
        try:
            check_path(path)
            if path.count("/") >= MAX_DEPTH:
                raise InvalidPath(f"it is more than {MAX_DEPTH} folders deep")
            status = entry.stat(follow_symlinks=False)
            if status.st_uid != self._owner:
                raise InvalidPath("it belongs to another user")
            if stat.S_ISDIR(status.st_mode):
                self.folders.append(path)
            elif stat.S_ISLNK(status.st_mode):
                target = _target(folder, entry.name, path)
                check_target(path, target)
                self._add(Found(path, FileKind.LINK, signature_of(status), target))
            elif stat.S_ISREG(status.st_mode):
                self._add(Found(path, FileKind.FILE, signature_of(status)))
            else:
                raise InvalidPath("it is a socket, a pipe or a device")
        except FileNotFoundError as fault:
            raise Changed(path) from fault
        except InvalidPath as fault:
            self.result.removed_count += 1
            if self.result.removed_count > self._settings.files:
                raise out_of_bounds(f"more than {self._settings.files} files that cannot be stored") from fault
            if len(self.result.removed) < _NAMED:
                self.result.removed.append(f'"{shown(os.fsencode(path))}" ({fault})')
            return False
        return True

    def _add(self, found: Found) -> None:
        self.result.found[found.path] = found
        if len(self.result.found) > self._settings.files:
            raise out_of_bounds(f"more than {self._settings.files} files")
        if found.kind is FileKind.FILE:
            size = found.signature.size
            if size > self._settings.file_bytes:
                limit = f'"{shown(found.path)}" has {size} bytes; a file can have {self._settings.file_bytes}'
                raise out_of_bounds(limit)
            self._bytes += size
            if self._bytes > self._settings.all_files_bytes:
                raise out_of_bounds(f"more than {self._settings.all_files_bytes} bytes in all files together")


def out_of_bounds(reason: str) -> OutOfBounds:
    return OutOfBounds(
        f"the files of the session would exceed their limits: {reason}. The call was undone: all files are as they "
        "were before it."
    )


def open_found(folder: int, found: Found) -> int:
    """A descriptor of exactly the file that was found. Raises Changed if there is another one now."""
    above, _, name = found.path.rpartition("/")
    with descriptor(open_parts(folder, above)) as parent:
        opened = _open(parent, name, _OPEN_FILE, 0o400)
    status = os.fstat(opened)
    if stat.S_ISREG(status.st_mode) and status.st_ino == found.signature.inode:
        return opened
    os.close(opened)
    raise Changed(found.path)


class Changed(Exception):
    """The folder was changed during the scan."""


def open_parts(folder: int, path: str) -> int:
    """A descriptor of the folder at `path`. Opened part by part, since O_NOFOLLOW is about the last part only."""
    at = os.dup(folder)
    for part in path.split("/") if path else []:
        try:
            below = _open(at, part, _OPEN_FOLDER, 0o700)
        finally:
            os.close(at)
        at = below
    return at


def _open(folder: int, name: str, flags: int, needed_mode: int) -> int:
    """Also what its owner has made unreadable: the worker is that user, or root."""
    try:
        return os.open(name, flags, dir_fd=folder)
    except PermissionError:
        with descriptor(os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)) as found:
            status = os.fstat(found)
            if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
                raise
            # By the descriptor: the name may belong to another file by now.
            os.chmod(f"/proc/self/fd/{found}", stat.S_IMODE(status.st_mode) | needed_mode)
            return os.open(f"/proc/self/fd/{found}", flags & ~os.O_NOFOLLOW)
    except OSError as fault:
        if fault.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENOENT, errno.ENXIO):
            raise Changed(name) from fault
        raise


def make_writable(folder: int) -> None:
    """A command may have forbidden it to the owner of the folder, who is the user of the worker unless that is root."""
    mode = stat.S_IMODE(os.fstat(folder).st_mode)
    if mode & 0o700 != 0o700:
        os.fchmod(folder, mode | 0o700)


def remove(folder: int, name: str) -> None:
    """Whatever it is. Links are not followed."""
    try:
        os.unlink(name, dir_fd=folder)
    except IsADirectoryError:
        remove_tree(folder, name)


def remove_tree(folder: int, name: str) -> None:
    """Folders below are moved up first, so that it does not matter how deeply they are nested."""
    waiting = [name]
    while waiting:
        current = waiting.pop()
        with descriptor(_open_writable(folder, current)) as opened:
            with os.scandir(opened) as entries:
                names = [entry.name for entry in entries]
            for below in names:
                try:
                    os.unlink(below, dir_fd=opened)
                except IsADirectoryError:
                    # Moving a folder changes it, since it knows its parent.
                    os.close(_open_writable(opened, below))
                    moved = f".{secrets.token_hex(8)}.removed"
                    os.rename(below, moved, src_dir_fd=opened, dst_dir_fd=folder)
                    waiting.append(moved)
        os.rmdir(current, dir_fd=folder)


def _open_writable(folder: int, name: str) -> int:
    opened = _open(folder, name, _OPEN_FOLDER, 0o700)
    os.fchmod(opened, 0o700)
    return opened

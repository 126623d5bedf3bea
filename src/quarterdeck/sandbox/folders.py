"""The folders of a worker process. Each belongs to one attempt at a time; nothing in them is needed after a restart.

A worker has a root folder of its own, locked while it lives. The next worker that starts deletes those of dead ones.
"""

import asyncio
import fcntl
import os
import secrets
import stat
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from quarterdeck.core.logging import log
from quarterdeck.core.settings import Settings, SettingsError
from quarterdeck.sandbox.beneath import descriptor
from quarterdeck.sandbox.host_users import HostUsers
from quarterdeck.sandbox.scan import Known, remove_tree

T = TypeVar("T")

_LOCK = "lock"
# Others may pass through, to their own folder, but not list it.
_PASSAGE_MODE = 0o711
# Walking, reading and writing of files. Restoring has threads of its own.
_THREADS = 8


class Folder:
    """The files of one session, as of one revision. After a change, until it is stored, the revision is unknown."""

    def __init__(self, session_id: UUID, workspace_id: UUID, path: Path, owner: int | None) -> None:
        self.session_id = session_id
        self.workspace_id = workspace_id
        # The user of the host to whom all files belong. None: the user of the worker.
        self.owner = owner
        self.path = path
        self.descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        self.revision: int | None = None
        # Everything that is in it, except while it is being changed.
        self.files: dict[str, Known] = {}
        # Held by the threads that work in it.
        self.lock = threading.Lock()
        self._discarded = threading.Event()

    @property
    def owner_id(self) -> int:
        return os.geteuid() if self.owner is None else self.owner

    def is_discarded(self) -> bool:
        return self._discarded.is_set()

    def discard(self) -> None:
        self._discarded.set()


class Folders:
    def __init__(self, base: Path, users: HostUsers | None, kept: int) -> None:
        self._users = users
        self._kept = kept
        self._idle: OrderedDict[UUID, Folder] = OrderedDict()
        self._threads = ThreadPoolExecutor(_THREADS, "session-folders")
        self._removals = ThreadPoolExecutor(1, "removals")
        # Could not be removed. For example, a process that is being killed still wrote to it.
        self._left: deque[Path] = deque()
        self._base = base
        base.mkdir(parents=True, exist_ok=True)
        with descriptor(_open_own(base)) as opened:
            # Nobody may take the new root for a dead one before it is locked.
            fcntl.flock(opened, fcntl.LOCK_EX)
            self.root = base / secrets.token_hex(8)
            self.root.mkdir()
            self.root.chmod(_PASSAGE_MODE)
            self._lock = os.open(self.root / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.sessions = self._subfolder("sessions", _PASSAGE_MODE)
        self.skills = self._subfolder("skills", 0o755)
        self.spools = self._subfolder("spools", 0o700)
        self.remove_left()

    def _subfolder(self, name: str, mode: int) -> Path:
        path = self.root / name
        path.mkdir()
        path.chmod(mode)
        return path

    def take(self, session_id: UUID, workspace_id: UUID) -> Folder:
        """The folder that was given back last, or an empty one. Raises SandboxUnavailable if no user is free for it."""
        return self._idle.pop(session_id, None) or self._make(session_id, workspace_id)

    def _make(self, session_id: UUID, workspace_id: UUID) -> Folder:
        # Until the folder is removed: its files must not belong to the user of another workspace.
        owner = None if self._users is None else self._users.hold(workspace_id)
        try:
            path = self.sessions / secrets.token_hex(16)
            path.mkdir(mode=0o700)
            folder = Folder(session_id, workspace_id, path, owner)
            if owner is not None:
                os.fchown(folder.descriptor, owner, owner)
        except OSError:
            if self._users is not None:
                self._users.release(workspace_id)
            raise
        return folder

    def give_back(self, folder: Folder) -> None:
        other = self._idle.pop(folder.session_id, None)
        if other is not None:
            self.discard(other)
        self._idle[folder.session_id] = folder
        while len(self._idle) > self._kept:
            self.discard(self._idle.popitem(last=False)[1])

    def idle(self) -> list[Folder]:
        """Those that no run uses."""
        return list(self._idle.values())

    def forget(self, folder: Folder) -> None:
        """Removes an idle folder, unless a run has taken it meanwhile."""
        if self._idle.get(folder.session_id) is folder:
            del self._idle[folder.session_id]
            self.discard(folder)

    def discard(self, folder: Folder) -> None:
        folder.discard()
        self._removals.submit(self._remove_folder, folder)

    def _remove_folder(self, folder: Folder) -> None:
        with folder.lock:
            os.close(folder.descriptor)
            self._remove(folder.path)
        if self._users is not None:
            self._users.release(folder.workspace_id)

    def remove_later(self, path: Path) -> None:
        self._removals.submit(self._remove, path)

    def remove_left(self) -> None:
        """Removes the roots of dead workers, and tries again what could not be removed."""
        while self._left:
            self.remove_later(self._left.popleft())
        self._removals.submit(self._remove_dead_roots)

    def _remove_dead_roots(self) -> None:
        with descriptor(_open_own(self._base)) as opened:
            fcntl.flock(opened, fcntl.LOCK_EX)
            dead = _dead_roots(self._base)
        for path, lock in dead:
            _remove_root(path, lock)

    def _remove(self, path: Path) -> None:
        if not _removed(path):
            self._left.append(path)

    async def run(self, folder: Folder, work: Callable[[], T]) -> T:
        """Work on the files of a folder, in a thread. It goes on after a cancellation, so the folder must be
        discarded then."""

        def locked() -> T:
            with folder.lock:
                if folder.is_discarded():
                    raise InterruptedError
                return work()

        return await self.in_thread(locked)

    async def in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def close(self) -> None:
        for folder in self._idle.values():
            self.discard(folder)
        self._threads.shutdown(wait=False, cancel_futures=True)
        await asyncio.to_thread(self._removals.shutdown)
        await asyncio.to_thread(_remove_root, self.root, self._lock)


def open_folders(settings: Settings, users: HostUsers | None) -> Folders:
    """`users`: those of the sandbox, who must be able to enter the folders. None: the user of the worker."""
    return Folders(_base(settings, None if users is None else users.first), users, settings.sandbox.kept_folders)


def _base(settings: Settings, owner: int | None) -> Path:
    if settings.sandbox.folder is not None:
        chosen = Path(settings.sandbox.folder).expanduser().absolute()
        if owner is not None and not _can_enter(chosen, owner):
            raise SettingsError(f"QUARTERDECK_SANDBOX_FOLDER={chosen}: the user {owner} of the sandbox cannot enter it")
        return chosen
    usual = settings.data_dir / "sandboxes"
    if owner is None or _can_enter(usual, owner):
        return usual
    return Path("/var/tmp") / f"quarterdeck-{os.geteuid()}"  # noqa: S108  checked by _open_own


def _can_enter(path: Path, user: int) -> bool:
    """Whether this user, who has no groups, can pass through all folders above. Those that are missing will be made."""
    for folder in [path, *path.parents]:
        with suppress(FileNotFoundError):
            status = folder.stat()
            needed = stat.S_IXUSR if status.st_uid == user else stat.S_IXOTH
            if not status.st_mode & needed:
                return folder == path and status.st_uid == os.geteuid()
    return True


def _open_own(base: Path) -> int:
    """The folder must be ours: others can write to /var/tmp."""
    opened = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    if os.fstat(opened).st_uid != os.geteuid():
        os.close(opened)
        raise SettingsError(f"{base} belongs to another user; set QUARTERDECK_SANDBOX_FOLDER to a folder of your own")
    os.fchmod(opened, _PASSAGE_MODE)
    return opened


def _dead_roots(base: Path) -> list[tuple[Path, int]]:
    """With their locks, which are held until they are deleted."""
    found: list[tuple[Path, int]] = []
    for root in base.iterdir():
        if root.is_symlink() or not root.is_dir():
            continue
        lock = os.open(root / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        else:
            found.append((root, lock))
    return found


def _remove_root(path: Path, lock: int) -> None:
    _removed(path)
    os.close(lock)


def _removed(path: Path) -> bool:
    try:
        with descriptor(os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as parent:
            remove_tree(parent, path.name)
    except Exception as fault:
        if not path.exists():
            return True
        log.warning("a folder could not be removed; trying again later", exc_info=fault)
        return False
    return True

"""Users of the host for sandboxes, if the worker is root: one for each workspace that has sandboxes or folders.

The kernel counts for a user of the host what no namespace bounds, such as instances of inotify, pages of pipes and
descriptors in sockets. With one user for all, a workspace could use up what the others need.
"""

import fcntl
import os
import pwd
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import UUID

from msgspec import Struct

from quarterdeck.core.settings import SandboxSettings, variable
from quarterdeck.sandbox.model import SandboxUnavailable

_LOCK = "sandbox-users.lock"


class _Held(Struct):
    user_id: int
    holders: int


class HostUsers:
    """A user stays with its workspace while anything of the workspace uses it in this process. Processes that share the
    data folder agree by locks on bytes of a file, one for each user; they end with the process."""

    def __init__(self, settings: SandboxSettings, data_dir: Path) -> None:
        self.first = settings.user_id
        self._number = settings.users
        self._data_dir = data_dir
        self._file: int | None = None
        self._held: dict[UUID, _Held] = {}
        # Folders are removed by threads.
        self._lock = threading.Lock()

    def hold(self, workspace_id: UUID) -> int:
        with self._lock:
            held = self._held.get(workspace_id)
            if held is None:
                held = self._held[workspace_id] = _Held(self._find(workspace_id), 0)
            held.holders += 1
            return held.user_id

    def release(self, workspace_id: UUID) -> None:
        with self._lock:
            held = self._held[workspace_id]
            held.holders -= 1
            if held.holders == 0:
                del self._held[workspace_id]
                fcntl.lockf(self._lock_file(), fcntl.LOCK_UN, 1, held.user_id)

    def _find(self, workspace_id: UUID) -> int:
        """Mostly the same one each time."""
        taken = {held.user_id for held in self._held.values()}
        start = workspace_id.int % self._number
        for position in range(self._number):
            user_id = self.first + (start + position) % self._number
            if user_id in taken or _has_account(user_id):
                continue
            with suppress(BlockingIOError, PermissionError):
                fcntl.lockf(self._lock_file(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, user_id)
                return user_id
        raise SandboxUnavailable(
            f"all {self._number} users for sandboxes are in use: increase {variable('sandbox', 'users')}"
        )

    def _lock_file(self) -> int:
        if self._file is None:
            self._data_dir.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self._data_dir / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return self._file


def host_users(settings: SandboxSettings, data_dir: Path) -> HostUsers | None:
    """None: sandboxes have the user of the worker, since only root can choose."""
    return HostUsers(settings, data_dir) if os.geteuid() == 0 else None


@contextmanager
def user_of(users: HostUsers | None, workspace_id: UUID) -> Iterator[int | None]:
    if users is None:
        yield None
        return
    user_id = users.hold(workspace_id)
    try:
        yield user_id
    finally:
        users.release(workspace_id)


def _has_account(user_id: int) -> bool:
    with suppress(KeyError):
        pwd.getpwuid(user_id)
        return True
    return False

"""Bounds for all processes of a sandbox together, by cgroups of version 1 or 2, where this process may create them.

A group lies below the group of this process, so that bounds of the operator hold for sandboxes too. Its folder is
locked while its owner lives: folders that can be locked were left behind by a killed worker, and are removed.
"""

import fcntl
import math
import os
import secrets
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from quarterdeck.core.settings import SandboxSettings

# Bounds that the kernel keeps for each process of a sandbox. The first process inside sets them for itself and all that
# follow, since a worker in a container often has no right to do it from outside.
#
# The number of processes is counted per user and user namespace (Linux 5.14), so that a sandbox counts only its own.

# Process 1 of the namespace, which belongs to bubblewrap.
OWN_PROCESSES = 1
OPEN_FILES = 1024
_NICE = 10
_OOM_SCORE = 1000
# Where a cgroup counts too, it shall be the one that is reached: it counts how often.
_BEHIND_CGROUP = 64


def limited(
    arguments: Sequence[str], settings: SandboxSettings, seconds: float | None, released: int, *, has_cgroup: bool
) -> list[str]:
    """A command that sets the limits and becomes the given one. Without `seconds` it may use any processor time.

    It first reads a byte from the descriptor `released`, and ends if there is none: the worker has died."""
    limits = {
        "u": settings.processes + OWN_PROCESSES + (_BEHIND_CGROUP if has_cgroup else 0),
        # In KiB.
        "f": math.ceil(settings.file_bytes / 1024),
        "n": OPEN_FILES,
        "c": 0,
        "q": 0,
    }
    if seconds is not None:
        # Only effective if the worker stands still: otherwise it ends the command in time.
        limits["t"] = math.ceil(seconds) * (os.cpu_count() or 1) + 1
    if not has_cgroup:
        # In KiB, of one process. It counts the stacks of threads in full, so it is used only where nothing better is.
        limits["d"] = math.ceil(settings.memory_bytes / 1024)
    script = [
        f"read -rN 1 -u {released}",
        f"exec {released}<&-",
        *(f"ulimit -{letter} {value}" for letter, value in limits.items()),
        # Other processes of the host get the processor first, and are killed last when memory runs out.
        f"echo {_OOM_SCORE} > /proc/self/oom_score_adj",
        f'exec nice -n {_NICE} "$@"',
    ]
    return ["/bin/bash", "-c", " && ".join(script), "bash", *arguments]


_PREFIX = "quarterdeck-sandbox-"
# Half of a group that says nothing.
_CPU_SHARES = 512
_CPU_WEIGHT = 50
_REMOVE_SECONDS = 5.0
_POLL_SECONDS = 0.005


class Parents(Struct, frozen=True):
    """Folders in which groups can be created, by controller. In version 2 there is one for all."""

    memory: Path
    pids: Path
    cpu: Path | None
    version: int

    def all(self) -> list[Path]:
        return list(dict.fromkeys(path for path in (self.memory, self.pids, self.cpu) if path is not None))


class Cgroup:
    def __init__(self, parents: Parents, name: str, settings: SandboxSettings) -> None:
        self._parents = parents
        self._name = name
        self._locks: list[int] = []
        try:
            for parent in parents.all():
                (parent / name).mkdir()
                descriptor = os.open(parent / name, os.O_RDONLY | os.O_DIRECTORY)
                self._locks.append(descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._set_limits(settings)
        except BaseException:
            self.remove()
            raise

    def _set_limits(self, settings: SandboxSettings) -> None:
        memory, pids = self._parents.memory / self._name, self._parents.pids / self._name
        processes = str(settings.processes + OWN_PROCESSES)
        if self._parents.version == 2:
            _write(memory / "memory.max", settings.memory_bytes)
            _try_to_write(memory / "memory.swap.max", 0)
            _try_to_write(memory / "memory.oom.group", 1)
            _try_to_write(memory / "cpu.weight", _CPU_WEIGHT)
        else:
            _write(memory / "memory.limit_in_bytes", settings.memory_bytes)
            _try_to_write(memory / "memory.memsw.limit_in_bytes", settings.memory_bytes)
            if self._parents.cpu is not None:
                _try_to_write(self._parents.cpu / self._name / "cpu.shares", _CPU_SHARES)
        _write(pids / "pids.max", processes)

    def add(self, pid: int) -> None:
        for parent in self._parents.all():
            _write(parent / self._name / "cgroup.procs", pid)

    @property
    def ran_out_of_memory(self) -> bool:
        file = "memory.events" if self._parents.version == 2 else "memory.oom_control"
        return _number(self._parents.memory / self._name / file, "oom_kill") > 0

    @property
    def ran_out_of_processes(self) -> bool:
        return _number(self._parents.pids / self._name / "pids.events", "max") > 0

    def remove(self) -> None:
        for parent in self._parents.all():
            _remove(parent / self._name)
        for descriptor in self._locks:
            os.close(descriptor)
        self._locks = []


def create_cgroup(parents: Parents, settings: SandboxSettings) -> Cgroup:
    try:
        return Cgroup(parents, _PREFIX + secrets.token_hex(8), settings)
    except (FileNotFoundError, BlockingIOError):
        # A worker that was just starting took it for a left one, before it was locked.
        return Cgroup(parents, _PREFIX + secrets.token_hex(8), settings)


def find_parents(settings: SandboxSettings) -> Parents | None:
    """Where a group can be created and bounded. None: nowhere."""
    for parents in _candidates():
        with suppress(OSError):
            _remove_left(parents)
            create_cgroup(parents, settings).remove()
            return parents
    return None


def _candidates() -> Iterable[Parents]:
    own = _own_groups(Path("/proc/self/cgroup").read_text())
    mounts = _mounts(Path("/proc/self/mountinfo").read_text())
    if "memory" in own and "pids" in own:
        folders = {name: _folder(mounts, name, own) for name in ("memory", "pids", "cpu")}
        memory, pids = folders["memory"], folders["pids"]
        if memory is not None and pids is not None:
            yield Parents(memory, pids, folders["cpu"], 1)
        return
    folder = _folder(mounts, "", own)
    for parent in version_2_parents(folder) if folder is not None else ():
        yield Parents(parent, parent, None, 2)


def version_2_parents(own: Path) -> Iterable[Path]:
    """A group with processes cannot have children with bounds, except the root. So the group above is used, if it was
    delegated to us."""
    for folder in (own, own.parent):
        if folder == own.parent and not _is_delegated(folder):
            continue
        _try_to_write(folder / "cgroup.subtree_control", "+memory +pids")
        _try_to_write(folder / "cgroup.subtree_control", "+cpu")
        with suppress(OSError):
            if {"memory", "pids"} <= set((folder / "cgroup.subtree_control").read_text().split()):
                yield folder


def _is_delegated(folder: Path) -> bool:
    """By systemd to a service (`Delegate=yes`), or to the user of this process."""
    with suppress(OSError):
        if os.geteuid() != 0:
            return folder.stat().st_uid == os.geteuid()
        return any(name in os.listxattr(folder) for name in ("user.delegate", "trusted.delegate"))
    return False


def _own_groups(text: str) -> dict[str, str]:
    """Controller → path. The group of version 2 has no controller's name."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        found |= dict.fromkeys(controllers.split(","), path)
    return found


def _mounts(text: str) -> dict[str, tuple[str, Path]]:
    """Controller → root of the mount and mount point."""
    found: dict[str, tuple[str, Path]] = {}
    for line in text.splitlines():
        mount, _, source = line.partition(" - ")
        root, point = mount.split()[3:5]
        kind, _, options = source.split()
        if kind == "cgroup2":
            found[""] = (root, Path(point))
        elif kind == "cgroup":
            found |= dict.fromkeys(options.split(","), (root, Path(point)))
    return found


def _folder(mounts: Mapping[str, tuple[str, Path]], controller: str, own: Mapping[str, str]) -> Path | None:
    if controller not in mounts or controller not in own:
        return None
    root, point = mounts[controller]
    path = own[controller]
    if root != "/":
        # In a container, the mount shows a part of the tree.
        if not path.startswith(root):
            return None
        path = path[len(root) :]
    folder = point / path.lstrip("/")
    return folder if folder.is_dir() else None


def _remove_left(parents: Parents) -> None:
    for parent in parents.all():
        for folder in parent.glob(f"{_PREFIX}*"):
            with suppress(OSError):
                descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    for pid in (folder / "cgroup.procs").read_text().split():
                        os.kill(int(pid), signal.SIGKILL)
                    _remove(folder)
                finally:
                    os.close(descriptor)


def _remove(folder: Path) -> None:
    """Busy for a moment after its last process has ended."""
    deadline = time.monotonic() + _REMOVE_SECONDS
    while True:
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_POLL_SECONDS)
        else:
            return


def _write(file: Path, value: object) -> None:
    # Not `write_text`: it would create a missing file outside of a cgroup filesystem.
    descriptor = os.open(file, os.O_WRONLY)
    try:
        os.write(descriptor, str(value).encode())
    finally:
        os.close(descriptor)


def _try_to_write(file: Path, value: object) -> None:
    with suppress(OSError):
        _write(file, value)


def _number(file: Path, name: str) -> int:
    with suppress(OSError):
        for line in file.read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    return 0

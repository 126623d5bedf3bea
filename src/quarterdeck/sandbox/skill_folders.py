"""The skills of sessions as folders: unpacked once for each worker, read-only in the sandbox."""

import asyncio
import re
import secrets
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from quarterdeck.blobs.model import Blob
from quarterdeck.core.errors import Kind, ServiceError
from quarterdeck.core.logging import log
from quarterdeck.sandbox.folders import Folders
from quarterdeck.sandbox.model import Refusal
from quarterdeck.sandbox.path_rules import parents_of_all
from quarterdeck.sandbox.scan import RESERVED
from quarterdeck.skills.archive import Take
from quarterdeck.skills.model import ManifestFile

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_MAX_NAME = 64


class SkillSource(Struct, frozen=True):
    archive: Blob
    # Its files.
    files: Callable[[], Awaitable[list[ManifestFile]]]
    # (files, takers by path)
    unpack: Callable[[list[ManifestFile], Mapping[str, Take]], Awaitable[None]]


class SkillFolders:
    """Of a worker. Those that no run uses are kept up to a number."""

    def __init__(self, folders: Folders, kept: int) -> None:
        self._folders = folders
        self._kept = kept
        self._unpacked: OrderedDict[Blob, asyncio.Task[Path]] = OrderedDict()
        self._holders: Counter[Blob] = Counter()

    async def hold(self, source: SkillSource) -> Path:
        """Until `release`."""
        archive = source.archive
        task = self._unpacked.get(archive)
        if task is None:
            task = self._unpacked[archive] = asyncio.create_task(self._unpack(source))
        self._unpacked.move_to_end(archive)
        self._holders[archive] += 1
        try:
            # A run that is cancelled does not end the work that others wait for.
            return await asyncio.shield(task)
        except BaseException:
            self.release([archive])
            if task.done():
                self._unpacked.pop(archive, None)
            raise

    def release(self, archives: Iterable[Blob]) -> None:
        self._holders.subtract(archives)
        for archive in self.idle():
            if len(self._unpacked) <= self._kept:
                break
            self.forget(archive)

    def idle(self) -> list[Blob]:
        """Those that no run uses."""
        return [archive for archive in self._unpacked if self._holders[archive] <= 0]

    def forget(self, archive: Blob) -> None:
        """Removes an unpacked skill, unless a run uses it."""
        task = self._unpacked.get(archive)
        if task is not None and task.done() and self._holders[archive] <= 0:
            del self._unpacked[archive], self._holders[archive]
            if not task.cancelled() and task.exception() is None:
                self._folders.remove_later(task.result())

    async def _unpack(self, source: SkillSource) -> Path:
        files = await source.files()
        target = self._folders.skills / f"{source.archive.sha256}-{secrets.token_hex(4)}"
        try:
            await asyncio.to_thread(_make_files, target, files)
            await source.unpack(files, {file.path: _Writer(target / file.path).write for file in files})
        except BaseException:
            self._folders.remove_later(target)
            raise
        return target


class _Writer:
    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, piece: bytes) -> None:
        # Opened each time: a bundle has up to ten thousand files.
        with self._path.open("ab") as file:
            file.write(piece)


def _make_files(target: Path, files: list[ManifestFile]) -> None:
    """The paths were checked when the bundle was pushed."""
    target.mkdir()
    for file in files:
        path = target / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        path.chmod(0o755 if file.executable else 0o644)
    for folder in ["", *parents_of_all(file.path for file in files)]:
        (target / folder).chmod(0o755)


class MountedSkills:
    """The skills of one run, by the names of their folders."""

    def __init__(self, folders: SkillFolders, sources: Mapping[str, SkillSource]) -> None:
        self._folders = folders
        self._sources = sources
        self._held: dict[str, Path] = {}

    @property
    def names(self) -> list[str]:
        return list(self._sources)

    async def folder(self, name: str) -> Path:
        source = self._sources.get(name)
        if source is None:
            raise Refusal(f'there is no folder "{RESERVED}/{name}".')
        if name not in self._held:
            try:
                self._held[name] = await self._folders.hold(source)
            except ServiceError as fault:
                if fault.kind is not Kind.INTERNAL:
                    raise
                log.warning("a skill could not be unpacked", exc_info=fault)
                raise Refusal(f'the files of "{RESERVED}/{name}" cannot be read.') from fault
        return self._held[name]

    async def mounts(self) -> dict[str, Path]:
        """What a sandbox mounts. Skills that cannot be read are left out."""
        found: dict[str, Path] = {}
        for name in self.names:
            try:
                found[f"{RESERVED}/{name}"] = await self.folder(name)
            except Refusal:
                continue
        return found

    def close(self) -> None:
        self._folders.release(self._sources[name].archive for name in self._held)
        self._held = {}


def folder_names(names: Iterable[str]) -> dict[str, str]:
    """The names of skills → the names of their folders, which are unique and safe in a path and in a shell."""
    found: dict[str, str] = {}
    for name in names:
        base = _UNSAFE.sub("-", name).strip("-")[:_MAX_NAME] or "skill"
        folder, number = base, 2
        while folder in found.values():
            folder, number = f"{base}-{number}", number + 1
        found[name] = folder
    return found

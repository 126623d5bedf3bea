"""Where the tools of one run work: the folder of its session, the skills beside it, and the sandbox."""

import asyncio
import os
import re
import secrets
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from quarterdeck.blobs.model import Blob, DamagedBlob
from quarterdeck.core.logging import log
from quarterdeck.core.settings import SandboxSettings
from quarterdeck.sandbox.adapter import SANDBOX_FOLDER, Sandbox
from quarterdeck.sandbox.beneath import FOLDER_MODE, descriptor, reported
from quarterdeck.sandbox.checkout import CheckoutTarget, checkout
from quarterdeck.sandbox.folders import Folders
from quarterdeck.sandbox.manifest import FileKind, ManifestFile
from quarterdeck.sandbox.model import Refusal
from quarterdeck.sandbox.scan import RESERVED
from quarterdeck.sandbox.session_folder import SessionFolder
from quarterdeck.skills.model import SkillFile, shown
from quarterdeck.skills.session_skills import RunSkill, SkillReader

# The skills of sessions as folders: unpacked once for each worker, read-only in the sandbox.

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_MAX_NAME = 64


class SkillFolders:
    """Cache of the folders of skills of one worker, by the SHA-256 of their archives. Keeps at most `kept` that no run
    uses."""

    def __init__(self, folders: Folders, reader: SkillReader, kept: int) -> None:
        self._folders = folders
        self._reader = reader
        self._kept = kept
        self._unpacked: OrderedDict[str, asyncio.Task[Path]] = OrderedDict()
        self._holders: Counter[str] = Counter()

    async def hold(self, skill: RunSkill) -> Path:
        """Until `release`."""
        archive = skill.archive
        assert archive is not None
        task = self._unpacked.get(archive)
        if task is None:
            task = self._unpacked[archive] = asyncio.create_task(self._unpack(skill))
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

    def release(self, archives: Iterable[str]) -> None:
        self._holders.subtract(archives)
        for archive in self.idle():
            if len(self._unpacked) <= self._kept:
                break
            self.forget(archive)

    def idle(self) -> list[str]:
        """Those that no run uses."""
        return [archive for archive in self._unpacked if self._holders[archive] <= 0]

    def forget(self, archive: str) -> None:
        """Removes an unpacked skill, unless a run uses it."""
        task = self._unpacked.get(archive)
        if task is not None and task.done() and self._holders[archive] <= 0:
            del self._unpacked[archive], self._holders[archive]
            if not task.cancelled() and task.exception() is None:
                self._folders.remove_later(task.result())

    async def _unpack(self, skill: RunSkill) -> Path:
        assert skill.archive is not None
        files = await self._reader.files(skill)
        contents = await self._reader.find_contents(files)
        target = self._folders.skills / f"{skill.archive}-{secrets.token_hex(4)}"
        stopped = threading.Event()

        def check_out() -> None:
            wanted = [_manifest_file(file, contents[file.sha256]) for file in files]
            target.mkdir()
            with descriptor(os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as folder:
                os.fchmod(folder, FOLDER_MODE)
                checkout(CheckoutTarget(folder, None, self._reader.blob_store, stopped.is_set), wanted, {})

        try:
            await self._folders.in_thread(check_out)
        except BaseException:
            stopped.set()
            self._folders.remove_later(target)
            raise
        return target


def _manifest_file(file: SkillFile, content: Blob) -> ManifestFile:
    return ManifestFile(
        path=file.path,
        kind=FileKind.FILE,
        sha256=content.sha256,
        generation=content.generation,
        bytes=file.bytes,
        mode=0o755 if file.executable else 0o644,
        target=None,
        modified_at=datetime.now(UTC),
    )


class MountedSkills:
    """The skills of one run, by the names of their folders."""

    def __init__(self, folders: SkillFolders, skills: Mapping[str, RunSkill]) -> None:
        self._folders = folders
        self._skills = skills
        self._held: dict[str, Path] = {}

    @property
    def names(self) -> list[str]:
        return list(self._skills)

    async def folder(self, name: str) -> Path:
        skill = self._skills.get(name)
        if skill is None:
            raise Refusal(f'there is no folder "{RESERVED}/{name}".')
        if name not in self._held:
            try:
                self._held[name] = await self._folders.hold(skill)
            except (DamagedBlob, FileNotFoundError) as fault:
                log.warning("a skill could not be unpacked", exc_info=fault)
                raise Refusal(f'the files of "{RESERVED}/{name}" cannot be read.') from fault
        return self._held[name]

    async def mounts(self) -> dict[str, Path]:
        """What a sandbox mounts. Skills that cannot be read are left out."""
        found: dict[str, Path] = {}
        for name in self.names:
            try:
                found[name] = await self.folder(name)
            except Refusal:
                continue
        return found

    def close(self) -> None:
        self._folders.release(archive for name in self._held if (archive := self._skills[name].archive))
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


T = TypeVar("T")


class RunSandbox(Struct, frozen=True):
    """What the tools of one run work with."""

    session_folder: SessionFolder
    skills: MountedSkills
    adapter: Sandbox
    settings: SandboxSettings
    # Largest size of a result.
    result_bytes: int
    # Output is sent to viewers at this interval.
    delta_seconds: float

    async def read(self, path: str, work: Callable[[int, str], T]) -> T:
        """Runs `work`, in a thread, with a folder and a path beneath it: those of the session or of a skill."""
        skill, below = skill_path(path)
        if skill is None:
            return await self.session_folder.read(lambda folder: _work(folder.descriptor, path, path, work))
        unpacked = await self.skills.folder(skill)

        def read() -> T:
            with descriptor(os.open(unpacked, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as opened:
                return _work(opened, below, path, work)

        return await self.session_folder.folders.in_thread(read)

    def close(self) -> None:
        self.session_folder.close()
        self.skills.close()


def _work(folder: int, path: str, named: str, work: Callable[[int, str], T]) -> T:
    with reported(shown(named) or "."):
        return work(folder, path)


def clean_path(path: str) -> str:
    """A path relative to the session's folder, without `.` and superfluous slashes. Empty: the folder itself."""
    if path == SANDBOX_FOLDER or path.startswith(f"{SANDBOX_FOLDER}/"):
        path = path.removeprefix(SANDBOX_FOLDER).lstrip("/")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or ".." in parts:
        raise Refusal(f'"{shown(path)}" leaves the folder of the session. Paths are relative to it and have no "..".')
    try:
        "/".join(parts).encode()
    except UnicodeEncodeError as fault:
        raise Refusal(f'"{shown(path)}" is not a valid path.') from fault
    if "\0" in path:
        raise Refusal(f'"{shown(path)}" is not a valid path.')
    return "/".join(parts)


def writable_path(path: str) -> str:
    cleaned = clean_path(path)
    if not cleaned:
        raise Refusal("the path of a file is needed.")
    if cleaned.split("/")[0] == RESERVED:
        raise Refusal(f'"{shown(cleaned)}" cannot be written: {RESERVED}/ holds the skills of the session.')
    return cleaned


def skill_path(path: str) -> tuple[str | None, str]:
    """The skill of a path, and the path in it. None: the path is not one of a skill."""
    first, _, rest = path.partition("/")
    if first != RESERVED or not rest:
        return None, path
    skill, _, below = rest.partition("/")
    return skill, below

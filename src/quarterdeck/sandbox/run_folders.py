"""Where the tools of one run work: the workspace, the skills beside it, and the sandbox."""

import os
from collections.abc import Callable
from typing import TypeVar

from msgspec import Struct

from quarterdeck.core.settings import SandboxSettings
from quarterdeck.sandbox.beneath import descriptor, reported
from quarterdeck.sandbox.model import Refusal, Sandbox
from quarterdeck.sandbox.scan import RESERVED
from quarterdeck.sandbox.session_folder import Workspace
from quarterdeck.sandbox.skill_folders import MountedSkills
from quarterdeck.skills.model import shown

T = TypeVar("T")

# Where commands see the workspace. Models name files by it, too.
WORKSPACE = "/workspace"


class Place(Struct, frozen=True):
    workspace: Workspace
    skills: MountedSkills
    sandbox: Sandbox
    settings: SandboxSettings
    # Largest size of a result.
    result_bytes: int
    # Output is sent to viewers at this interval.
    delta_seconds: float

    async def read(self, path: str, work: Callable[[int, str], T]) -> T:
        """Runs `work`, in a thread, with a folder and a path beneath it: those of the workspace or of a skill."""
        skill, below = skill_path(path)
        if skill is None:
            return await self.workspace.read(lambda folder: _work(folder.descriptor, path, path, work))
        unpacked = await self.skills.folder(skill)

        def read() -> T:
            with descriptor(os.open(unpacked, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as opened:
                return _work(opened, below, path, work)

        return await self.workspace.in_thread(read)

    def close(self) -> None:
        self.workspace.close()
        self.skills.close()


def _work(folder: int, path: str, named: str, work: Callable[[int, str], T]) -> T:
    with reported(shown(named) or "."):
        return work(folder, path)


def clean_path(path: str) -> str:
    """A path relative to the workspace, without `.` and superfluous slashes. Empty: the workspace itself."""
    if path == WORKSPACE or path.startswith(f"{WORKSPACE}/"):
        path = path.removeprefix(WORKSPACE).lstrip("/")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or ".." in parts:
        raise Refusal(f'"{shown(path)}" leaves the workspace. Paths are relative to it and have no "..".')
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

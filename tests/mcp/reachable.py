"""Makes programs and packages readable for the user of the sandbox, who cannot enter every folder: a clone may lie in a
home folder, or in a temporary folder of one user."""

import os
import shutil
import sys
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement


def reachable(source: Path, folder: Path) -> Path:
    """The folder itself, or links to its files below `folder`, which every user can enter."""
    if _can_enter(source):
        return source
    target = folder / source.name
    shutil.copytree(source, target, symlinks=True, copy_function=_link)
    return target


def reachable_python(folder: Path) -> Path:
    """The prefix of the interpreter, with its standard library."""
    prefix, name = Path(sys.base_prefix), f"python{sys.version_info[0]}.{sys.version_info[1]}"
    if _can_enter(prefix / "bin" / name):
        return prefix
    target = folder / "python"
    for file in [prefix / "bin" / name, *(prefix / "lib").glob("libpython*")]:
        _link(file.resolve(), target / file.relative_to(prefix))
    without = shutil.ignore_patterns("site-packages", "test", "config-*")
    library = Path("lib") / name
    shutil.copytree(prefix / library, target / library, symlinks=True, ignore=without, copy_function=_link)
    return target


def reachable_packages(name: str, folder: Path) -> Path:
    """A distribution with everything that it requires."""
    installed = Path(str(distribution(name).locate_file("")))
    if _can_enter(installed):
        return installed
    target = folder / "packages"
    missing, seen = [Requirement(name)], set[str]()
    while missing:
        required = missing.pop()
        if str(required) in seen:
            continue
        seen.add(str(required))
        found = distribution(required.name)
        for file in found.files or []:
            source = Path(str(file.locate()))
            if ".." not in file.parts and source.exists() and not (target / file).exists():
                _link(source, target / file)
        extras = [{"extra": extra} for extra in ("", *required.extras)]
        for one in map(Requirement, found.requires or []):
            if one.marker is None or any(one.marker.evaluate(extra) for extra in extras):
                missing.append(one)
    return target


def _can_enter(path: Path) -> bool:
    """Whether every user can."""
    return all(one.stat().st_mode & 0o001 for one in (path, *path.resolve().parents))


def _link(source: str | Path, target: str | Path) -> None:
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        # Another file system.
        shutil.copy2(source, target)

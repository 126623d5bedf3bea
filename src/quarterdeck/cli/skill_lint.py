"""What is wrong with a skill before it is pushed: the server's own rules, and as many faults at once as can be told."""

import fnmatch
import os
import re
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from quarterdeck.client.bundle_archive import File, bundle_files, pack_folder
from quarterdeck.client.errors import InvalidBundle
from quarterdeck.core.settings import BundleSettings
from quarterdeck.skills.archive import SKILL_MD
from quarterdeck.skills.bundle import missing_skill_md, read_bundle
from quarterdeck.skills.frontmatter import frontmatter_faults
from quarterdeck.skills.gunzip import Source
from quarterdeck.skills.model import Bundle, BundleError, shown
from quarterdeck.skills.paths import bundle_path

# What is in a folder by accident. Allowed, and rarely meant.
_LITTER = ("*.pyc", ".DS_Store", "Thumbs.db", "*.swp", "*~")
_SECRETS = (".env", ".env.*", "*.pem", "*.key", "id_rsa", "id_ed25519", ".netrc", "credentials.json")
_FENCE = re.compile(r"^---[ \t]*\r?$", re.MULTILINE)


class Finding(Struct, frozen=True):
    file: str
    line: int | None
    message: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.message}"


class Report(Struct, frozen=True):
    faults: list[Finding]
    warnings: list[Finding]
    # None where there are faults.
    bundle: Bundle | None


def lint(path: Path, limits: BundleSettings) -> Report:
    """A folder, or an archive of one. Raises OSError."""
    if path.is_dir():
        return _folder(path, limits)
    with path.open("rb") as archive:
        found = _read(archive, limits)
    if isinstance(found, Bundle):
        return Report([], [], found)
    # What lies in an archive has no path of its own.
    return Report([Finding(str(path), None, found.message)], [], None)


def _folder(folder: Path, limits: BundleSettings) -> Report:
    try:
        files = sorted(bundle_files(folder), key=lambda file: file.name)
        faults = list(_faults(folder, files, limits))
        bundle = None
        if any(file.name == SKILL_MD.encode() for file in files):
            with pack_folder(folder) as archive:
                found = _read(archive, limits)
            if isinstance(found, Bundle):
                bundle = found
            elif (last := _finding(folder, found)) not in faults:
                faults.append(last)
    except InvalidBundle as fault:
        place, _, reason = fault.message.partition(": ")
        return Report([Finding(place, None, reason)], [], None)
    faults.sort(key=lambda fault: (fault.file, fault.line or 0))
    return Report(faults, list(_warnings(folder, files, bundle)), None if faults else bundle)


def _read(archive: Source, limits: BundleSettings) -> Bundle | BundleError:
    try:
        return read_bundle(archive, limits)
    except BundleError as fault:
        return fault


def _faults(folder: Path, files: list[File], limits: BundleSettings) -> Iterator[Finding]:
    """Those that do not hide each other. The whole is read by the server's reader afterwards."""
    paths: dict[str, bool] = {}
    for file in files:
        try:
            paths[bundle_path(file.name, directory=False, limits=limits)] = False
        except BundleError as fault:
            yield _finding(folder, fault)
    if SKILL_MD not in paths:
        yield _finding(folder, missing_skill_md(paths))
        return
    content = (folder / SKILL_MD).read_bytes()
    if len(content) <= limits.skill_md_bytes:
        yield from (_finding(folder, fault) for fault in frontmatter_faults(content, limits))


def _finding(folder: Path, fault: BundleError) -> Finding:
    if fault.path is None:
        return Finding(str(folder), None, fault.reason)
    # Of what is missing there is no line.
    line = fault.line or (1 if fault.path == SKILL_MD else None)
    return Finding(os.path.join(folder, fault.path), line, fault.reason)


def _warnings(folder: Path, files: list[File], bundle: Bundle | None) -> Iterator[Finding]:
    left_out = sorted(_all_files(folder) - {str(file.path) for file in files})
    if left_out:
        count = f"{len(left_out)} files are" if len(left_out) > 1 else "one file is"
        yield Finding(str(folder), None, f"{count} left out by ignore files: {_some(folder, left_out)}")
    for file in files:
        name = file.path.name
        if any(fnmatch.fnmatch(name, pattern) for pattern in _SECRETS):
            yield Finding(str(file.path), None, "it may hold a secret, which all who read the skill would see.")
        if any(fnmatch.fnmatch(name, pattern) for pattern in _LITTER):
            yield Finding(str(file.path), None, "it is rarely meant to be pushed. A .skillignore leaves it out.")
    if bundle is None:
        return
    skill_md = folder / SKILL_MD
    name = bundle.frontmatter["name"]
    if (folder_name := folder.resolve().name) != name:
        yield Finding(str(skill_md), None, f'the name "{name}" is not that of the folder, "{shown(folder_name)}".')
    if not _FENCE.split(skill_md.read_text("utf-8-sig"), maxsplit=2)[-1].strip():
        yield Finding(str(skill_md), None, "nothing follows the frontmatter: the skill tells an agent nothing.")


def _all_files(folder: Path) -> set[str]:
    found = set()
    for here, folders, names in os.walk(folder):
        # Never packed, and nobody expects it to be.
        folders[:] = [each for each in folders if each != ".git"]
        found |= {os.path.join(here, name) for name in names}
    return found


def _some(folder: Path, paths: list[str]) -> str:
    names = [shown(os.path.relpath(path, folder)) for path in paths[:3]]
    return ", ".join(names) + (", …" if len(paths) > len(names) else ".")

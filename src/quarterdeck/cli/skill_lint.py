"""`qd skills lint`: checks a skill with the server's own reader, and reports as many errors at once as possible."""

import fnmatch
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from quarterdeck.blobs.model import Source
from quarterdeck.client.bundle_archive import File, bundle_files, pack_folder
from quarterdeck.client.errors import InvalidBundle
from quarterdeck.core.settings import BundleSettings
from quarterdeck.skills.archive import SKILL_MD, missing_skill_md, read_bundle
from quarterdeck.skills.frontmatter import frontmatter_faults
from quarterdeck.skills.model import Bundle, BundleError, shown
from quarterdeck.skills.paths import bundle_path

# The SKILL.md that `qd skills init` writes.

DESCRIPTION = "Describe in one or two sentences what this skill does and when an agent should use it."
_TEMPLATE = """\
---
name: {name}
description: {description}
---

# {name}

Write down what the agent needs to know and what to do, step by step. Other files in this folder are part of the skill:
mention them here, and the agent reads them when it needs them.
"""


def template(name: str, description: str) -> str:
    # A JSON string is also valid YAML, whatever characters it contains.
    return _TEMPLATE.format(name=name, description=json.dumps(description, ensure_ascii=False))


# Allowed, but usually in the folder by accident.
_UNINTENDED = ("*.pyc", ".DS_Store", "Thumbs.db", "*.swp", "*~")
_SECRETS = (".env", ".env.*", "*.pem", "*.key", "id_rsa", "id_ed25519", ".netrc", "credentials.json")
_FENCE = re.compile(r"^---[ \t]*\r?$", re.MULTILINE)


class Finding(Struct, frozen=True):
    file: str
    line: int | None
    message: str

    def __str__(self) -> str:
        location = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{location}: {self.message}"


class Report(Struct, frozen=True):
    errors: list[Finding]
    warnings: list[Finding]
    # None if there are errors.
    bundle: Bundle | None


def lint_skill(path: Path, limits: BundleSettings) -> Report:
    """Checks a folder or an archive. Raises OSError."""
    if path.is_dir():
        return _lint_folder(path, limits)
    with path.open("rb") as archive:
        found = _read(archive, limits)
    if isinstance(found, Bundle):
        return Report([], [], found)
    # Files in an archive have no path on disk.
    return Report([Finding(str(path), None, found.message)], [], None)


def _lint_folder(folder: Path, limits: BundleSettings) -> Report:
    names = {path.name: path.is_dir() for path in folder.iterdir()}
    if SKILL_MD not in names:
        # Probably not the folder of a skill: it may be large, and errors in its files would say nothing.
        return Report([_finding(folder, missing_skill_md(names))], [], None)
    try:
        files = sorted(bundle_files(folder), key=lambda file: file.name)
        errors = list(_errors(folder, files, limits))
        bundle = None
        if any(file.name == SKILL_MD.encode() for file in files):
            with pack_folder(folder) as archive:
                found = _read(archive, limits)
            if isinstance(found, Bundle):
                bundle = found
            elif (last := _finding(folder, found)) not in errors:
                errors.append(last)
    except InvalidBundle as error:
        location, _, reason = error.message.partition(": ")
        return Report([Finding(location, None, reason)], [], None)
    errors.sort(key=lambda error: (error.file, error.line or 0))
    return Report(errors, list(_warnings(folder, files, bundle)), None if errors else bundle)


def _read(archive: Source, limits: BundleSettings) -> Bundle | BundleError:
    try:
        return read_bundle(archive, limits)
    except BundleError as error:
        return error


def _errors(folder: Path, files: list[File], limits: BundleSettings) -> Iterator[Finding]:
    """Independent errors. Afterwards the server's reader checks the whole bundle and stops at the first error."""
    paths: dict[str, bool] = {}
    for file in files:
        try:
            paths[bundle_path(file.name, directory=False, limits=limits)] = False
        except BundleError as error:
            yield _finding(folder, error)
    if SKILL_MD not in paths:
        yield _finding(folder, missing_skill_md(paths))
        return
    content = (folder / SKILL_MD).read_bytes()
    if len(content) <= limits.skill_md_bytes:
        yield from (_finding(folder, error) for error in frontmatter_faults(content, limits))


def _finding(folder: Path, error: BundleError) -> Finding:
    if error.path is None:
        return Finding(str(folder), None, error.reason)
    # A missing field has no line.
    line = error.line or (1 if error.path == SKILL_MD else None)
    return Finding(os.path.join(folder, error.path), line, error.reason)


def _warnings(folder: Path, files: list[File], bundle: Bundle | None) -> Iterator[Finding]:
    ignored = sorted(_all_files(folder) - {str(file.path) for file in files})
    if ignored:
        count = f"{len(ignored)} files are" if len(ignored) > 1 else "1 file is"
        yield Finding(str(folder), None, f"{count} ignored: {_some(folder, ignored)}")
    for file in files:
        name = file.path.name
        if any(fnmatch.fnmatch(name, pattern) for pattern in _SECRETS):
            yield Finding(
                str(file.path), None, "may contain a secret, which everyone who can read the skill would see."
            )
        if any(fnmatch.fnmatch(name, pattern) for pattern in _UNINTENDED):
            yield Finding(str(file.path), None, "usually not part of a skill. Add it to .skillignore.")
    if bundle is None:
        return
    skill_md = folder / SKILL_MD
    name = bundle.frontmatter["name"]
    if (folder_name := folder.resolve().name) != name:
        yield Finding(str(skill_md), None, f'the name "{name}" differs from the folder name "{shown(folder_name)}".')
    if bundle.frontmatter["description"] == DESCRIPTION:
        yield Finding(str(skill_md), None, "the description is the one of the template. Agents choose skills by it.")
    if not _FENCE.split(skill_md.read_text("utf-8-sig"), maxsplit=2)[-1].strip():
        yield Finding(str(skill_md), None, "there are no instructions after the frontmatter.")


def _all_files(folder: Path) -> set[str]:
    found = set()
    for here, folders, names in os.walk(folder):
        # Never packed, so not worth a warning.
        folders[:] = [each for each in folders if each != ".git"]
        # As Path, which spells a file the same whether the folder is given as "." or by its name.
        found |= {str(Path(here, name)) for name in names}
    return found


def _some(folder: Path, paths: list[str]) -> str:
    names = [shown(os.path.relpath(path, folder)) for path in paths[:3]]
    return ", ".join(names) + (", …" if len(paths) > len(names) else ".")

"""What agents and skills have in common: they are pushed from a folder, and sessions use one of their versions."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from quarterdeck.cli.errors import CliError
from quarterdeck.cli.options import argument, flag, version_number
from quarterdeck.cli.output import Result, say
from quarterdeck.client.models import AgentBody, SkillBody

Versioned = AgentBody | SkillBody

Version = Annotated[int, argument("VERSION", "Version number.", parser=version_number)]
OptionalVersion = Annotated[int | None, argument("VERSION", "Version number.", parser=version_number)]
OldVersion = Annotated[int, argument("A", "Old version.", parser=version_number)]
NewVersion = Annotated[int, argument("B", "New version.", parser=version_number)]
Latest = Annotated[bool, flag("--latest", "Always use the latest version again.")]


def write_templates(folder: Path, files: Mapping[str, str]) -> None:
    """Creates the folder if needed. Existing files are never overwritten."""
    paths = {folder / name: text for name, text in files.items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in paths:
            if os.path.lexists(path):
                raise CliError(f"{path}: already exists")
        for path, text in paths.items():
            path.write_text(text, "utf-8")
    except FileExistsError:
        raise CliError(f"{folder}: not a folder") from None
    say("\n".join(f"wrote {path}" for path in paths))


def refused(reason: str) -> CliError:
    return CliError(f"{reason}. Use --force to push anyway.")


def pinned_hint(target: Versioned, group: str) -> str | None:
    """What to say after a push that sessions do not use."""
    if target.default_version is None:
        return None
    return f"Sessions still use version {target.default_version}. See `qd {group} rollback --latest`."


def used_version(item: Versioned) -> int | None:
    return item.default_version or item.latest_version


def used_text(item: Versioned) -> str:
    if item.latest_version is None:
        return ""
    return "Latest (auto-update)" if item.default_version is None else f"Pinned to version {item.default_version}"


def check_rollback(version: int | None, *, latest: bool) -> None:
    if (version is None) is not latest:
        raise CliError("Use either VERSION or --latest")


def rolled_back(changed: Versioned) -> Result:
    pinned = changed.default_version
    used = f"the latest version (now {changed.latest_version})" if pinned is None else f"version {pinned}"
    return Result(changed, f"{changed.name}: sessions use {used}")

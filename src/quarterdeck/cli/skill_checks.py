"""What `qd skills push` refuses unless it is forced to: invalid bundles, and pushes that are probably mistakes."""

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from quarterdeck.cli.exit_codes import CliError, ExitCode
from quarterdeck.cli.skill_lint import lint_skill
from quarterdeck.cli.skill_template import template
from quarterdeck.core.settings import read_settings
from quarterdeck.skills.archive import SKILL_MD
from quarterdeck.skills.model import Bundle

if TYPE_CHECKING:
    from quarterdeck.client import Client
    from quarterdeck.client.models import SkillBody


def check_bundle(folder: str) -> Bundle:
    """Lint a folder or archive before anything is created or uploaded."""
    report = lint_skill(Path(folder), read_settings(os.environ).bundle)
    if report.bundle is None:
        first, *others = report.errors
        more = f" {len(others)} more: see `qd skills lint {folder}`." if others else ""
        raise CliError(f"{first}{more}", ExitCode.INVALID_INPUT)
    return report.bundle


def check_push(client: "Client", bundle: Bundle, skill_name: str, skill: "SkillBody | None") -> None:
    """`skill` is None if the push would create it."""
    name = bundle.frontmatter["name"]
    if name != skill_name:
        raise _refused(f"the name in {SKILL_MD} is {name!r}, but the skill is {skill_name!r}")
    untouched = hashlib.sha256(template(name, bundle.frontmatter["description"]).encode()).hexdigest()
    if any(file.path == SKILL_MD and file.sha256 == untouched for file in bundle.manifest.files):
        raise _refused(f"{SKILL_MD} is the unchanged template of `qd skills init`")
    if skill is None or skill.latest_version is None:
        return
    latest = client.get_skill_version(skill.id, skill.latest_version)
    if latest.manifest["files"] == msgspec.to_builtins(bundle.manifest.files):
        raise _refused(f"no changes since version {skill.latest_version} of {skill_name}")


def _refused(reason: str) -> CliError:
    return CliError(f"{reason}. Use --force to push anyway.", ExitCode.INVALID_INPUT)

"""`qd skills`."""

import hashlib
import os
import re
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from quarterdeck.cli import find, versioned
from quarterdeck.cli.commands import command
from quarterdeck.cli.connection import open_client
from quarterdeck.cli.errors import CliError, ExitCode
from quarterdeck.cli.options import (
    AsJson,
    Limit,
    Profile,
    SkillId,
    Yes,
    argument,
    confirm,
    file_name,
    flag,
    line,
    option,
)
from quarterdeck.cli.output import (
    Page,
    Result,
    cell,
    count_text,
    download_to,
    note,
    print_diff,
    progress_bar,
    say,
    size,
)
from quarterdeck.cli.skill_lint import DESCRIPTION, Report, lint_skill, template
from quarterdeck.client import Client, InvalidRequest
from quarterdeck.client.bundle_archive import open_archive
from quarterdeck.client.models import SkillBody, SkillDiffBody, SkillVersionItem
from quarterdeck.core.settings import read_settings
from quarterdeck.skills.archive import SKILL_MD
from quarterdeck.skills.model import Bundle

app = typer.Typer(rich_markup_mode=None)

Folder = Annotated[str, argument("DIR", "Folder or archive of the skill.", parser=file_name)]

_NOT_IN_A_NAME = re.compile(r"[^a-z0-9]+")
_NOT_IN_A_FILE_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_NAME_CHARACTERS = 64
_COLUMNS = ("ID", "NAME", ">LATEST", "IN USE", "CREATED", "DESCRIPTION")


@command(app, "list")
def list_(
    client: Client, archived: Annotated[bool, flag("--archived", "List archived skills.")] = False, limit: Limit = 50
) -> Page[SkillBody]:
    """List skills, newest first."""
    empty = "No archived skills." if archived else "No skills yet."
    return Page(client.iter_skills(archived=archived), limit, _COLUMNS, _row, empty)


@command(app)
def search(
    client: Client,
    words: Annotated[str, argument("TEXT", "Text in the name or description.")],
    archived: Annotated[bool, flag("--archived", "Search archived skills.")] = False,
    limit: Limit = 50,
) -> Page[SkillBody]:
    """Find skills by name or description, newest first. Case is ignored."""
    every = client.iter_skills(archived=archived, limit=200)
    found = (one for one in every if words.casefold() in f"{one.name}\n{one.description or ''}".casefold())
    return Page(found, limit, _COLUMNS, _row, "No matching skills.")


@app.command()
def init(
    folder: Annotated[str, argument("DIR", "Folder of the skill. Created if needed.", parser=file_name)],
    description: Annotated[str | None, option("TEXT", "What the skill does and when to use it.", parser=line)] = None,
) -> None:
    """Create a folder with a SKILL.md to start from."""
    path = Path(folder)
    name = _NOT_IN_A_NAME.sub("-", path.resolve().name.lower()).strip("-")[:_MAX_NAME_CHARACTERS].strip("-") or "skill"
    versioned.write_templates(path, {SKILL_MD: template(name, description or DESCRIPTION)})


@app.command()
def lint(folder: Folder, as_json: AsJson = False) -> None:
    """Check a skill with the rules of the server, without a server. Errors set the exit code to 1; warnings do not."""
    report = _lint(folder)
    record = {"faults": report.errors, "warnings": report.warnings}
    exit_code = ExitCode.UNSUCCESSFUL if report.errors else 0
    Result(record, lambda: _print_report(folder, report), exit_code=exit_code).print(as_json=as_json)


@app.command()
def push(
    skill: SkillId,
    folder: Folder,
    create: Annotated[bool, flag("--create", "Create the skill if it does not exist.")] = False,
    force: Annotated[
        bool, flag("--force", "Skip all checks, also those for unchanged content and for another name.")
    ] = False,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Push a folder or archive as the next version of a skill. It is checked first, as by `qd skills lint`."""
    with open_archive(folder) as archive, open_client(profile) as client:
        bundle = None if force else _checked_bundle(folder)
        target = find.or_none(find.skill, client, skill) if create else find.skill(client, skill)
        if bundle is not None:
            _check_push(client, bundle, skill if target is None else target.name, target)
        target = target or client.create_skill(name=skill)
        try:
            with progress_bar(f"Pushing {target.name}") as progress:
                pushed = client.push_skill_version(target.id, archive, progress=progress)
        except InvalidRequest as error:
            hint = f" The skill {target.name} exists but has no versions." if target.latest_version is None else ""
            raise CliError(error.message + hint) from None
    text = f"pushed {target.name} version {pushed.version} ({size(pushed.bundle_bytes)})"
    Result(pushed, text, hint=versioned.pinned_hint(target, "skills")).print(as_json=as_json)


@command(app)
def versions(client: Client, skill: SkillId, limit: Limit = 50) -> Page[SkillVersionItem]:
    """List the versions of a skill, newest first."""
    target = find.skill(client, skill)

    def row(one: SkillVersionItem) -> list[object]:
        is_used = one.version == versioned.used_version(target)
        description = " ".join(str(one.frontmatter["description"]).split())
        return [one.version, is_used, size(one.bundle_bytes), one.created_at, one.created_by, description]

    columns = (">VERSION", "IN USE", ">SIZE", "PUSHED", "BY", "DESCRIPTION")
    return Page(client.iter_skill_versions(target.id), limit, columns, row, "No versions.")


@command(app)
def diff(client: Client, skill: SkillId, base: versioned.OldVersion, head: versioned.NewVersion) -> Result:
    """Show the changes between two versions."""
    found = client.diff_skill_versions(find.skill(client, skill).id, base=base, head=head)
    return Result(found, lambda: _print_diff(found))


@command(app)
def download(
    client: Client,
    skill: SkillId,
    version: versioned.Version,
    output: Annotated[
        str | None, option("FILE", "Output file. Use - for stdout.", "-o", "--output", parser=file_name)
    ] = None,
) -> None:
    """Download the archive of a version and verify its SHA-256."""
    target = find.skill(client, skill)
    name = output or f"{_NOT_IN_A_FILE_NAME.sub('-', target.name).strip('.-') or 'skill'}-{version}.tar.gz"
    title = f"Downloading {target.name} version {version}"
    download_to(name, title, partial(client.download_skill_bundle, target.id, version))


@command(app)
def rollback(
    client: Client, skill: SkillId, version: versioned.OptionalVersion = None, latest: versioned.Latest = False
) -> Result:
    """Set the version that sessions use. It applies from their next run on, unless they pin one."""
    versioned.check_rollback(version, latest=latest)
    return versioned.rolled_back(client.change_skill(find.skill(client, skill).id, default_version=version))


@command(app)
def archive(client: Client, skill: SkillId) -> None:
    """Archive a skill. It then accepts no versions and no new sessions; sessions that use it keep it."""
    changed = client.change_skill(find.skill(client, skill, archived=False).id, archived=True)
    say(f"archived {changed.name}")


@command(app)
def unarchive(client: Client, skill: Annotated[str, argument("SKILL", "ID or name of the archived skill.")]) -> None:
    """Unarchive a skill."""
    changed = client.change_skill(find.skill(client, skill, archived=True).id, archived=False)
    say(f"unarchived {changed.name}")


@command(app)
def delete(client: Client, skill: SkillId, yes: Yes = False) -> None:
    """Delete a skill that no session uses, with its versions. This can't be undone."""
    found = find.skill(client, skill)
    confirm(f"Delete {found.name} and all its versions?", yes=yes)
    client.delete_skill(found.id)
    say(f"deleted {found.name}")


def _lint(folder: str) -> Report:
    return lint_skill(Path(folder), read_settings(os.environ).bundle)


def _print_report(folder: str, report: Report) -> None:
    for warning in report.warnings:
        note(f"{warning.file}: warning: {warning.message}")
    for finding in report.errors:
        say(str(finding))
    if report.bundle is not None:
        manifest = report.bundle.manifest
        packed = f"{size(manifest.unpacked_bytes)}, packed {size(report.bundle.bundle_bytes)}"
        say(f"{folder}: OK: {count_text(len(manifest.files), 'file')}, {packed}")


def _checked_bundle(folder: str) -> Bundle:
    """Lint a folder or archive before anything is created or uploaded."""
    report = _lint(folder)
    if report.bundle is None:
        first, *others = report.errors
        more = f" {len(others)} more: see `qd skills lint {folder}`." if others else ""
        raise CliError(f"{first}{more}")
    return report.bundle


def _check_push(client: Client, bundle: Bundle, skill_name: str, skill: SkillBody | None) -> None:
    """`skill` is None if the push would create it."""
    name = bundle.frontmatter["name"]
    if name != skill_name:
        raise versioned.refused(f"the name in {SKILL_MD} is {name!r}, but the skill is {skill_name!r}")
    untouched = hashlib.sha256(template(name, bundle.frontmatter["description"]).encode()).hexdigest()
    if any(file.path == SKILL_MD and file.sha256 == untouched for file in bundle.manifest.files):
        raise versioned.refused(f"{SKILL_MD} is the unchanged template of `qd skills init`")
    if skill is None or skill.latest_version is None:
        return
    latest = client.get_skill_version(skill.id, skill.latest_version)
    if latest.manifest["files"] == msgspec.to_builtins(bundle.manifest.files):
        raise versioned.refused(f"no changes since version {skill.latest_version} of {skill_name}")


def _print_diff(found: SkillDiffBody) -> None:
    for file in found.files:
        if file.diff:
            print_diff(file.diff)
        if file.why_no_diff is not None:
            reason = "not text" if file.why_no_diff == "binary" else "too large"
            say(f"{file.change} {file.path} ({reason}: {file.base_bytes or 0} → {file.head_bytes or 0} bytes)")
        elif not file.diff and file.change != "changed":
            say(f"{file.change} {file.path} (empty)")
        if file.executable_changed:
            say(f"{file.path}: executable in one of the versions only")
    if found.truncated:
        note("Too many changed files: some are not shown.")
    if not found.files:
        note("No differences.")


def _row(one: SkillBody) -> list[object]:
    return [one.id, one.name, one.latest_version, versioned.used_text(one), one.created_at, cell(one.description or "")]

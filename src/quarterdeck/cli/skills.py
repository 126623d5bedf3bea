"""`qd skills`."""

import hashlib
import os
import re
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from quarterdeck.cli import find
from quarterdeck.cli.connection import open_client
from quarterdeck.cli.errors import CliError, ExitCode
from quarterdeck.cli.options import (
    AsJson,
    Latest,
    Limit,
    NewVersion,
    OldVersion,
    Profile,
    SkillId,
    VersionArgument,
    Yes,
    argument,
    confirm,
    file_name,
    flag,
    line,
    option,
    version_number,
)
from quarterdeck.cli.output import (
    Column,
    document_output,
    note,
    print_diff,
    print_json,
    print_list,
    print_result,
    progress_bar,
    say,
    size,
)
from quarterdeck.cli.skill_lint import DESCRIPTION, lint_skill, template
from quarterdeck.client import Client, InvalidRequest
from quarterdeck.client.bundle_archive import open_archive
from quarterdeck.client.models import FileDiffBody, SkillBody, SkillVersionItem
from quarterdeck.core.settings import read_settings
from quarterdeck.skills.archive import SKILL_MD
from quarterdeck.skills.model import Bundle


def check_bundle(folder: str) -> Bundle:
    """Lint a folder or archive before anything is created or uploaded."""
    report = lint_skill(Path(folder), read_settings(os.environ).bundle)
    if report.bundle is None:
        first, *others = report.errors
        more = f" {len(others)} more: see `qd skills lint {folder}`." if others else ""
        raise CliError(f"{first}{more}")
    return report.bundle


def check_push(client: Client, bundle: Bundle, skill_name: str, skill: SkillBody | None) -> None:
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
    return CliError(f"{reason}. Use --force to push anyway.")


app = typer.Typer(rich_markup_mode=None, help="Create, check, push, compare and download skills.")

Number = Annotated[int, argument("VERSION", "Version number.", parser=version_number)]
Folder = Annotated[str, argument("DIR", "Folder or archive of the skill.", parser=file_name)]

_NOT_IN_A_NAME = re.compile(r"[^a-z0-9]+")
_NOT_IN_A_FILE_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_NAME_CHARACTERS = 64
_MAX_DESCRIPTION_CHARACTERS = 60
_COLUMNS = ("ID", "NAME", Column("LATEST", right=True), "IN USE", "CREATED", "DESCRIPTION")


@app.command("list")
def list_(
    archived: Annotated[bool, flag("--archived", "List archived skills.")] = False,
    limit: Limit = 50,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """List skills, newest first."""
    with open_client(profile) as client:
        print_list(
            client.iter_skills(archived=archived),
            _COLUMNS,
            _row,
            "No archived skills." if archived else "No skills yet.",
            limit,
            as_json=as_json,
        )


@app.command()
def search(
    words: Annotated[str, argument("TEXT", "Text in the name or description.")],
    archived: Annotated[bool, flag("--archived", "Search archived skills.")] = False,
    limit: Limit = 50,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Find skills by name or description, newest first. Case is ignored."""
    wanted = words.casefold()
    with open_client(profile) as client:
        print_list(
            (
                skill
                for skill in client.iter_skills(archived=archived, limit=200)
                if wanted in f"{skill.name}\n{skill.description or ''}".casefold()
            ),
            _COLUMNS,
            _row,
            "No matching skills.",
            limit,
            as_json=as_json,
        )


@app.command()
def init(
    folder: Annotated[str, argument("DIR", "Folder of the skill. Created if needed.", parser=file_name)],
    description: Annotated[str | None, option("TEXT", "What the skill does and when to use it.", parser=line)] = None,
) -> None:
    """Create a folder with a SKILL.md to start from."""
    path = Path(folder)
    name = _NOT_IN_A_NAME.sub("-", path.resolve().name.lower()).strip("-")[:_MAX_NAME_CHARACTERS].strip("-") or "skill"
    if path.exists() and not path.is_dir():
        raise CliError(f"{path}: not a folder")
    try:
        path.mkdir(parents=True, exist_ok=True)
        with (path / "SKILL.md").open("x", encoding="utf-8") as file:
            file.write(template(name, description or DESCRIPTION))
    except FileExistsError:
        raise CliError(f"{path / 'SKILL.md'}: already exists") from None
    except OSError as error:
        raise CliError(f"{path}: {error.strerror}") from None
    say(f"wrote {path / 'SKILL.md'}")


@app.command()
def lint(folder: Folder, as_json: AsJson = False) -> None:
    """Check a skill with the rules of the server, without a server. Errors set the exit code to 1; warnings do not."""
    try:
        report = lint_skill(Path(folder), read_settings(os.environ).bundle)
    except OSError as error:
        raise CliError(f"{error.filename or folder}: {error.strerror}") from None
    if as_json:
        print_json({"faults": report.errors, "warnings": report.warnings})
    else:
        for warning in report.warnings:
            note(f"{warning.file}: warning: {warning.message}")
        for finding in report.errors:
            say(str(finding))
        if report.bundle is not None:
            files = report.bundle.manifest.files
            say(
                f"{folder}: OK: {len(files)} {'file' if len(files) == 1 else 'files'}, "
                f"{size(report.bundle.manifest.unpacked_bytes)}, packed {size(report.bundle.bundle_bytes)}"
            )
    if report.errors:
        raise typer.Exit(ExitCode.UNSUCCESSFUL)


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
        bundle = None if force else check_bundle(folder)
        target = find.skill_or_none(client, skill) if create else find.skill(client, skill)
        if bundle is not None:
            check_push(client, bundle, skill if target is None else target.name, target)
        target = target or client.create_skill(name=skill)
        try:
            with progress_bar(f"Pushing {target.name}") as progress:
                pushed = client.push_skill_version(target.id, archive, progress=progress)
        except InvalidRequest as error:
            hint = f" The skill {target.name} exists but has no versions." if target.latest_version is None else ""
            raise CliError(error.message + hint) from None
    print_result(
        pushed, f"pushed {target.name} version {pushed.version} ({size(pushed.bundle_bytes)})", as_json=as_json
    )
    if target.default_version is not None:
        note(f"Sessions still use version {target.default_version}. See `qd skills rollback --latest`.")


@app.command()
def versions(skill: SkillId, limit: Limit = 50, profile: Profile = None, as_json: AsJson = False) -> None:
    """List the versions of a skill, newest first."""
    with open_client(profile) as client:
        target = find.skill(client, skill)
        used = target.default_version or target.latest_version
        print_list(
            client.iter_skill_versions(target.id),
            (Column("VERSION", right=True), "IN USE", Column("SIZE", right=True), "PUSHED", "BY", "DESCRIPTION"),
            lambda version: _version_row(version, used),
            "No versions.",
            limit,
            as_json=as_json,
        )


@app.command()
def diff(skill: SkillId, base: OldVersion, head: NewVersion, profile: Profile = None, as_json: AsJson = False) -> None:
    """Show the changes between two versions."""
    with open_client(profile) as client:
        found = client.diff_skill_versions(find.skill(client, skill).id, base=base, head=head)
    if as_json:
        print_json(found)
        return
    for file in found.files:
        _print_file(file)
    if found.truncated:
        note("Too many changed files: some are not shown.")
    if not found.files:
        note("No differences.")


@app.command()
def download(
    skill: SkillId,
    version: Number,
    output: Annotated[
        str | None, option("FILE", "Output file. Use - for stdout.", "-o", "--output", parser=file_name)
    ] = None,
    profile: Profile = None,
) -> None:
    """Download the archive of a version and verify its SHA-256."""
    with open_client(profile) as client:
        target = find.skill(client, skill)
        name = output or f"{_NOT_IN_A_FILE_NAME.sub('-', target.name).strip('.-') or 'skill'}-{version}.tar.gz"
        with progress_bar(f"Downloading {target.name} version {version}") as progress:
            if name == "-":
                with document_output() as out:
                    client.download_skill_bundle(target.id, version, out, progress=progress)
                return
            try:
                count = client.download_skill_bundle(target.id, version, name, progress=progress)
            except OSError as error:
                raise CliError(f"{name}: {error.strerror}") from None
    say(f"wrote {name} ({size(count)})")


@app.command()
def rollback(
    skill: SkillId,
    version: VersionArgument = None,
    latest: Latest = False,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Set the version that sessions use. It applies from their next run on, unless they pin one."""
    if (version is None) is not latest:
        raise CliError("Use either VERSION or --latest")
    with open_client(profile) as client:
        changed = client.change_skill(find.skill(client, skill).id, default_version=version)
    if as_json:
        print_json(changed)
    else:
        used = f"the latest version (now {changed.latest_version})" if version is None else f"version {version}"
        say(f"{changed.name}: sessions use {used}")


@app.command()
def archive(skill: SkillId, profile: Profile = None) -> None:
    """Archive a skill. It then accepts no versions and no new sessions; sessions that use it keep it."""
    with open_client(profile) as client:
        found = find.skill(client, skill, archived=False)
        client.change_skill(found.id, archived=True)
    say(f"archived {found.name}")


@app.command()
def unarchive(
    skill: Annotated[str, argument("SKILL", "ID or name of the archived skill.")], profile: Profile = None
) -> None:
    """Unarchive a skill."""
    with open_client(profile) as client:
        found = find.skill(client, skill, archived=True)
        client.change_skill(found.id, archived=False)
    say(f"unarchived {found.name}")


@app.command()
def delete(skill: SkillId, yes: Yes = False, profile: Profile = None) -> None:
    """Delete a skill that no session uses, with its versions. This can't be undone."""
    with open_client(profile) as client:
        found = find.skill(client, skill)
        confirm(f"Delete {found.name} and all its versions?", yes=yes)
        client.delete_skill(found.id)
    say(f"deleted {found.name}")


def _print_file(file: FileDiffBody) -> None:
    if file.diff:
        print_diff(file.diff)
    if file.why_no_diff is not None:
        reason = "not text" if file.why_no_diff == "binary" else "too large"
        say(f"{file.change} {file.path} ({reason}: {file.base_bytes or 0} → {file.head_bytes or 0} bytes)")
    elif not file.diff and file.change != "changed":
        say(f"{file.change} {file.path} (empty)")
    if file.executable_changed:
        say(f"{file.path}: executable in one of the versions only")


def _row(skill: SkillBody) -> list[object]:
    latest = "" if skill.latest_version is None else str(skill.latest_version)
    used = "Latest (auto-update)" if skill.default_version is None else f"Pinned to version {skill.default_version}"
    description = " ".join((skill.description or "").split())
    if len(description) > _MAX_DESCRIPTION_CHARACTERS:
        description = f"{description[: _MAX_DESCRIPTION_CHARACTERS - 1].rstrip()}…"
    return [skill.id, skill.name, latest, used if latest else "", skill.created_at, description]


def _version_row(version: SkillVersionItem, used: int | None) -> list[object]:
    return [
        version.version,
        version.version == used,
        size(version.bundle_bytes),
        version.created_at,
        version.created_by,
        " ".join(str(version.frontmatter["description"]).split()),
    ]

"""`qd skills`: from an empty folder to a version that agents use, and back."""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quarterdeck.cli.connection import open_client
from quarterdeck.cli.exit_codes import Complaint, Exit
from quarterdeck.cli.options import AsJson, Limit, Profile, file_name, text
from quarterdeck.cli.output import (
    Column,
    actor,
    note,
    print_diff,
    print_json,
    print_list,
    progress_bar,
    say,
    size,
    when,
)
from quarterdeck.core.ids import parse_id

if TYPE_CHECKING:
    from quarterdeck.client import Client
    from quarterdeck.skills.model import FileDiffBody, SkillBody, SkillVersionItem

app = typer.Typer(rich_markup_mode=None, help="Write, push, compare and download skills.")

Skill = Annotated[str, typer.Argument(parser=text, metavar="SKILL", help="Id or name of the skill.")]
Number = Annotated[int, typer.Argument(min=1, max=2**31 - 1, metavar="VERSION", help="Number of the version.")]
Folder = Annotated[str, typer.Argument(parser=file_name, metavar="DIR", help="Folder of the skill, or an archive.")]

_NOT_IN_A_NAME = re.compile(r"[^a-z0-9]+")
_NOT_IN_A_FILE_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_NAME = 64
_TEMPLATE = """\
---
name: {name}
description: Says in one or two sentences what this skill does and when an agent should use it.
---

# {name}

Write here what the agent needs to know and what it is to do, step by step. Files beside this one belong to the skill
too: name them here, and the agent reads them when it needs them.
"""


@app.command("list")
def list_(
    archived: Annotated[bool, typer.Option("--archived", help="List the archived ones instead.")] = False,
    limit: Limit = 50,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """List the skills, newest first."""
    with open_client(profile) as client:
        print_list(
            client.iter_skills(archived=archived),
            limit,
            ("ID", "NAME", Column("LATEST", right=True), "IN USE", "CREATED"),
            _row,
            as_json=as_json,
            empty="There are no archived skills." if archived else "There are no skills.",
        )


@app.command()
def init(folder: Annotated[str, typer.Argument(parser=file_name, metavar="DIR", help="Made if need be.")]) -> None:
    """Begin a skill: a folder with a SKILL.md."""
    path = Path(folder)
    name = _NOT_IN_A_NAME.sub("-", path.resolve().name.lower()).strip("-")[:_LONGEST_NAME].strip("-") or "skill"
    if path.exists() and not path.is_dir():
        raise Complaint(f"{path}: it is not a folder", Exit.WRONG_INPUT)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with (path / "SKILL.md").open("x", encoding="utf-8") as file:
            file.write(_TEMPLATE.format(name=name))
    except FileExistsError:
        raise Complaint(f"{path / 'SKILL.md'}: it is there already", Exit.WRONG_INPUT) from None
    except OSError as fault:
        raise Complaint(f"{path}: {fault.strerror}", Exit.WRONG_INPUT) from None
    say(f"wrote {path / 'SKILL.md'}")


@app.command()
def lint(folder: Folder, as_json: AsJson = False) -> None:
    """Check a skill by the rules of the server, without one. Faults make the exit code 1, warnings do not."""
    from quarterdeck.cli.skill_lint import lint as look
    from quarterdeck.core.settings import read_settings

    try:
        report = look(Path(folder), read_settings(os.environ).bundle)
    except OSError as fault:
        raise Complaint(f"{fault.filename or folder}: {fault.strerror}", Exit.WRONG_INPUT) from None
    if as_json:
        print_json({"faults": report.faults, "warnings": report.warnings})
    else:
        for warning in report.warnings:
            note(f"{warning.file}: warning: {warning.message}")
        for found in report.faults:
            say(str(found))
        if report.bundle is not None:
            files = report.bundle.manifest.files
            say(
                f"{folder}: good: {len(files)} {'file' if len(files) == 1 else 'files'}, "
                f"{size(report.bundle.manifest.unpacked_bytes)}, packed {size(report.bundle.bundle_bytes)}"
            )
    if report.faults:
        raise typer.Exit(Exit.UNSUCCESSFUL)


@app.command()
def push(
    skill: Skill,
    folder: Folder,
    create: Annotated[bool, typer.Option("--create", help="Make the skill if none has this name.")] = False,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Push a folder, or an archive of one, as the next version of a skill."""
    from quarterdeck.client import InvalidRequest
    from quarterdeck.client.bundle_archive import archive_of

    with archive_of(folder) as archive, open_client(profile) as client:
        target = _found_or_created(client, skill) if create else find_skill(client, skill)
        try:
            with progress_bar(f"Pushing {target.name}") as progress:
                pushed = client.push_skill_version(target.id, archive, progress=progress)
        except InvalidRequest as fault:
            left = f" The skill {target.name} is there, without a version." if target.latest_version is None else ""
            raise Complaint(fault.message + left, Exit.WRONG_INPUT) from None
    if as_json:
        print_json(pushed)
    else:
        say(f"pushed {target.name} version {pushed.version} ({size(pushed.bundle_bytes)})")
    if target.default_version is not None:
        note(f"Sessions still use version {target.default_version}: see `qd skills rollback --latest`.")


@app.command()
def versions(skill: Skill, limit: Limit = 50, profile: Profile = None, as_json: AsJson = False) -> None:
    """List the versions of a skill, newest first."""
    with open_client(profile) as client:
        target = find_skill(client, skill)
        used = target.default_version or target.latest_version
        print_list(
            client.iter_skill_versions(target.id),
            limit,
            (Column("VERSION", right=True), "IN USE", Column("SIZE", right=True), "PUSHED", "BY", "DESCRIPTION"),
            lambda version: _version_row(version, used),
            as_json=as_json,
            empty="No version was pushed yet.",
        )


@app.command()
def diff(
    skill: Skill,
    base: Annotated[int, typer.Argument(min=1, max=2**31 - 1, metavar="A", help="The version to start from.")],
    head: Annotated[int, typer.Argument(min=1, max=2**31 - 1, metavar="B", help="The version to arrive at.")],
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Show what changed from one version to another."""
    with open_client(profile) as client:
        found = client.diff_skill_versions(find_skill(client, skill).id, base=base, head=head)
    if as_json:
        print_json(found)
        return
    for file in found.files:
        _print_file(file)
    if found.truncated:
        note("More files differ than are shown here.")
    if not found.files:
        note("The two versions hold the same files.")


@app.command()
def download(
    skill: Skill,
    version: Number,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", parser=file_name, metavar="FILE", help="- writes it to the output."),
    ] = None,
    profile: Profile = None,
) -> None:
    """Download the archive of a version. Its SHA-256 is checked before the file appears."""
    with open_client(profile) as client:
        target = find_skill(client, skill)
        name = output or f"{_NOT_IN_A_FILE_NAME.sub('-', target.name).strip('.-') or 'skill'}-{version}.tar.gz"
        with progress_bar(f"Downloading {target.name} version {version}") as progress:
            if name == "-":
                out = typer.get_binary_stream("stdout")
                client.download_skill_bundle(target.id, version, out, progress=progress)
                out.flush()
                return
            try:
                count = client.download_skill_bundle(target.id, version, name, progress=progress)
            except OSError as fault:
                raise Complaint(f"{name}: {fault.strerror}", Exit.WRONG_INPUT) from None
    say(f"wrote {name} ({size(count)})")


@app.command()
def rollback(
    skill: Skill,
    version: Annotated[
        int | None, typer.Argument(min=1, max=2**31 - 1, metavar="VERSION", help="Number of the version.")
    ] = None,
    latest: Annotated[bool, typer.Option("--latest", help="Follow the latest version again.")] = False,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Let sessions that pin no version use this one, from their next run on."""
    if (version is None) is not latest:
        raise typer.BadParameter("give either a VERSION or --latest")
    with open_client(profile) as client:
        changed = client.change_skill(find_skill(client, skill).id, default_version=version)
    if as_json:
        print_json(changed)
    else:
        used = f"the latest version, now {changed.latest_version}" if version is None else f"version {version}"
        say(f"{changed.name}: sessions use {used}")


def find_skill(client: "Client", given: str) -> "SkillBody":
    """By its id, or by its name where one skill has it."""
    if (skill_id := parse_id(given)) is not None:
        return client.get_skill(skill_id)
    named = _named(client, given)
    if named is None:
        raise Complaint(f"no skill is called {given!r}: see `qd skills list`", Exit.NOT_FOUND)
    return named


def _found_or_created(client: "Client", given: str) -> "SkillBody":
    if parse_id(given) is not None:
        return find_skill(client, given)
    return _named(client, given) or client.create_skill(name=given)


def _named(client: "Client", name: str) -> "SkillBody | None":
    found = [skill for skill in client.iter_skills(page_size=200) if skill.name == name]
    if len(found) > 1:
        raise Complaint(f"{len(found)} skills are called {name!r}: give the id of one", Exit.WRONG_INPUT)
    return found[0] if found else None


def _print_file(file: "FileDiffBody") -> None:
    if file.diff:
        print_diff(file.diff)
    if file.why_no_diff is not None:
        reason = "not text" if file.why_no_diff == "binary" else "too large"
        say(f"{file.change} {file.path} ({reason}: {file.base_bytes or 0} → {file.head_bytes or 0} bytes)")
    elif not file.diff and file.change != "changed":
        say(f"{file.change} {file.path} (empty)")
    if file.executable_changed:
        say(f"{file.path}: only one of the two may be executed")


def _row(skill: "SkillBody") -> list[str]:
    latest = "" if skill.latest_version is None else str(skill.latest_version)
    used = "the latest" if skill.default_version is None else f"version {skill.default_version}"
    return [str(skill.id), skill.name, latest, used if latest else "", when(skill.created_at)]


def _version_row(version: "SkillVersionItem", used: int | None) -> list[str]:
    return [
        str(version.version),
        "yes" if version.version == used else "",
        size(version.bundle_bytes),
        when(version.created_at),
        actor(version.created_by),
        " ".join(str(version.frontmatter["description"]).split()),
    ]

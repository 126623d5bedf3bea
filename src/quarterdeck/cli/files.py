"""`qd files`: files of a session, and uploaded files."""

import os
import shutil
import sys
import tarfile
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from quarterdeck.cli import completion, find
from quarterdeck.cli.connection import open_client
from quarterdeck.cli.errors import CliError
from quarterdeck.cli.options import (
    AsJson,
    Limit,
    Profile,
    SessionId,
    Yes,
    argument,
    confirm,
    file_name,
    flag,
    line,
    option,
    uuid,
)
from quarterdeck.cli.output import Column, document_output, note, print_json, print_list, progress_bar, say, size
from quarterdeck.client import Client
from quarterdeck.client.models import SessionFileBody
from quarterdeck.client.transfers import Progress, spool

app = typer.Typer(rich_markup_mode=None, help="List, download and upload files.")

FileId = Annotated[UUID, argument("FILE_ID", "ID of an uploaded file.", parser=uuid)]
_ARCHIVE_ENDINGS = (".tar.gz", ".tgz")
_STDOUT = "-"


@app.command("list")
def list_(
    session_id: SessionId,
    prefix: Annotated[str | None, option("PREFIX", "Only paths that begin with this.")] = None,
    limit: Limit = 1000,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """List the files of a session, by path."""
    with open_client(profile) as client:
        print_list(
            client.iter_session_files(find.session_id(client, session_id), prefix=prefix, limit=min(limit, 200)),
            (Column("SIZE", right=True), "CHANGED", "PATH"),
            _row,
            "No files found." if prefix else "No files yet.",
            limit,
            as_json=as_json,
        )


@app.command()
def get(
    session_id: SessionId,
    path: Annotated[
        str | None, argument("PATH", "Path of the file in the session.", complete=completion.session_files)
    ] = None,
    all_: Annotated[bool, flag("--all", "Download all files.")] = False,
    output: Annotated[
        str | None,
        option(
            "FILE",
            "Output file or folder. Use - for stdout. With --all: a new folder, without links, or FILE.tar.gz.",
            "-o",
            "--output",
            parser=file_name,
        ),
    ] = None,
    force: Annotated[bool, flag("--force", "Overwrite existing files.")] = False,
    profile: Profile = None,
) -> None:
    """Download a file of a session, or all files."""
    if (path is None) is not all_:
        raise CliError("Use either PATH or --all")
    with open_client(profile) as client:
        found_id = find.session_id(client, session_id)
        if path is None:
            _get_all(client, found_id, output or f"files-{found_id}.tar.gz", force=force)
        else:
            _get_file(client, found_id, path, output, force=force)


@app.command()
def put(
    file: Annotated[str, argument("FILE", "File to upload. Use - for stdin.", parser=file_name)],
    name: Annotated[
        str | None, option("NAME", "Name of the uploaded file. Default: that of FILE.", parser=line)
    ] = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Upload a file and print its ID."""
    if file == _STDOUT and name is None:
        raise CliError("Use --name to name what is read from stdin")
    with open_client(profile) as client, progress_bar(f"Uploading {name or file}") as progress:
        source = sys.stdin.buffer if file == _STDOUT else checked_file(file)
        uploaded = client.upload(source, name=name, progress=progress)
    if as_json:
        print_json(uploaded)
    else:
        say(str(uploaded.id))
        note(
            f"Uploaded {uploaded.name} ({size(uploaded.bytes)}). Attach it: qd send SESSION TEXT --attach {uploaded.id}"
        )


@app.command()
def delete(file_id: FileId, yes: Yes = False, profile: Profile = None) -> None:
    """Delete an uploaded file. Sessions to which it was attached keep it. This can't be undone."""
    with open_client(profile) as client:
        if not yes:
            confirm(f"Delete {client.get_file(file_id).name}?", yes=yes)
        client.delete_file(file_id)
    say(f"deleted {file_id}")


def checked_file(name: str) -> Path:
    """Refuses what cannot be read, before anything is sent."""
    path = Path(name)
    if path.is_dir():
        raise CliError(f"{name}: is a folder")
    if not os.access(path, os.R_OK):
        raise CliError(f"{name}: {'not readable' if path.exists() else 'no such file'}")
    return path


def _row(file: SessionFileBody) -> list[object]:
    target = "" if file.target is None else f" -> {file.target}"
    ending = "/" if file.kind == "folder" else target
    return [size(file.bytes) if file.kind == "file" else "", file.modified_at, file.path + ending]


def _get_file(client: Client, session_id: UUID, path: str, output: str | None, *, force: bool) -> None:
    name = path.rstrip("/").rpartition("/")[2] or "file"
    if output == _STDOUT:
        with progress_bar(f"Downloading {name}") as progress, document_output() as out:
            client.download_session_file(session_id, out, path=path, progress=progress)
        return
    target = Path(name if output is None else output)
    if target.is_dir():
        target /= name
    _check_new(target, force=force)
    with progress_bar(f"Downloading {name}") as progress:
        count = client.download_session_file(session_id, target, path=path, progress=progress)
    say(f"wrote {target} ({size(count)})")


def _get_all(client: Client, session_id: UUID, output: str, *, force: bool) -> None:
    with progress_bar("Downloading all files") as progress:
        if output == _STDOUT:
            with document_output() as out:
                client.download_session_archive(session_id, out, progress=progress)
            return
        target = Path(output)
        if not output.endswith(_ARCHIVE_ENDINGS):
            _unpack(client, session_id, target, progress, force=force)
            return
        _check_new(target, force=force)
        count = client.download_session_archive(session_id, target, progress=progress)
    say(f"wrote {target} ({size(count)})")


def _unpack(client: Client, session_id: UUID, folder: Path, progress: Progress, *, force: bool) -> None:
    """What the archive names is not trusted. No link is made: where one leads depends on the links before it."""
    if folder.exists() and not folder.is_dir():
        raise CliError(f"{folder}: not a folder")
    if not force and folder.is_dir() and any(folder.iterdir()):
        raise CliError(f"{folder}: not empty. Use --force to overwrite files in it.")
    written: set[tuple[int, int]] = set()
    with spool() as archive:
        client.download_session_archive(session_id, archive, progress=progress)
        archive.seek(0)
        folder.mkdir(parents=True, exist_ok=True)
        with tarfile.open(fileobj=archive, mode="r:gz") as members:
            for member in members:
                fault = _extract(members, member, folder, written)
                if fault is not None:
                    note(f"{member.name}: left out, because it {fault}")
    say(f"wrote {folder} ({len(written)} {'file' if len(written) == 1 else 'files'})")


def _extract(
    members: tarfile.TarFile, member: tarfile.TarInfo, folder: Path, written: set[tuple[int, int]]
) -> str | None:
    """Writes a file or folder and returns None, or why it is left out. `written` has the identities of all files.
    Not by `TarFile.extract`, which has no filters before Python 3.11.4."""
    if not (member.isfile() or member.isdir()):
        return "is a link" if member.issym() or member.islnk() else "is no file"
    if "\0" in member.name:
        return "has no valid name"
    target = folder / member.name
    # Resolves links that are in the folder already.
    if not target.resolve().is_relative_to(folder.resolve()):
        return "leads out of the folder"
    if member.isdir():
        target.mkdir(parents=True, exist_ok=True)
        return None
    if target.is_file() and _identity(target) in written:
        return "has the path of another file on this file system"
    target.parent.mkdir(parents=True, exist_ok=True)
    content = members.extractfile(member)
    assert content is not None, "it is a file"
    with content, target.open("wb") as file:
        shutil.copyfileobj(content, file)
    target.chmod(0o755 if member.mode & 0o100 else 0o644)
    os.utime(target, (member.mtime, member.mtime))
    written.add(_identity(target))
    return None


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def _check_new(target: Path, *, force: bool) -> None:
    if not force and os.path.lexists(target):
        raise CliError(f"{target}: already exists. Use --force to overwrite it.")

"""`qd files`: files of a session, and uploaded files."""

import os
import shutil
import sys
import tarfile
from functools import partial
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from quarterdeck.cli import completion, find
from quarterdeck.cli.commands import command
from quarterdeck.cli.errors import CliError
from quarterdeck.cli.options import Limit, SessionId, Yes, argument, confirm, file_name, flag, line, option, uuid
from quarterdeck.cli.output import Page, Result, count_text, download_to, note, progress_bar, say, size
from quarterdeck.client import Client
from quarterdeck.client.models import SessionFileBody
from quarterdeck.client.transfers import spool

app = typer.Typer(rich_markup_mode=None)

FileId = Annotated[UUID, argument("FILE_ID", "ID of an uploaded file.", parser=uuid)]
_ARCHIVE_ENDINGS = (".tar.gz", ".tgz")
# Also stdin.
_STDOUT = "-"


@command(app, "list")
def list_(
    client: Client,
    session_id: SessionId,
    prefix: Annotated[str | None, option("PREFIX", "Only paths that begin with this.")] = None,
    limit: Limit = 1000,
) -> Page[SessionFileBody]:
    """List the files of a session, by path."""
    found_id = find.session_id(client, session_id)
    found = client.iter_session_files(found_id, prefix=prefix, limit=min(limit, 200))
    empty = "No files found." if prefix else "No files yet."
    return Page(found, limit, (">SIZE", "CHANGED", "PATH"), _row, empty)


@command(app)
def get(
    client: Client,
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
) -> None:
    """Download a file of a session, or all files."""
    if (path is None) is not all_:
        raise CliError("Use either PATH or --all")
    found_id = find.session_id(client, session_id)
    if path is None:
        output = output or f"files-{found_id}.tar.gz"
        if output != _STDOUT and not output.endswith(_ARCHIVE_ENDINGS):
            _unpack(client, found_id, Path(output), force=force)
            return
        title, download = "Downloading all files", partial(client.download_session_archive, found_id)
    else:
        name = path.rstrip("/").rpartition("/")[2] or "file"
        output = output or name
        if output != _STDOUT and Path(output).is_dir():
            output = str(Path(output) / name)
        title, download = f"Downloading {name}", partial(client.download_session_file, found_id, path=path)
    if output != _STDOUT and not force and os.path.lexists(output):
        raise CliError(f"{output}: already exists. Use --force to overwrite it.")
    download_to(output, title, download)


@command(app)
def put(
    client: Client,
    file: Annotated[str, argument("FILE", "File to upload. Use - for stdin.", parser=file_name)],
    name: Annotated[
        str | None, option("NAME", "Name of the uploaded file. Default: that of FILE.", parser=line)
    ] = None,
) -> Result:
    """Upload a file and print its ID."""
    if file == _STDOUT and name is None:
        raise CliError("Use --name to name what is read from stdin")
    source = sys.stdin.buffer if file == _STDOUT else checked_file(file)
    with progress_bar(f"Uploading {name or file}") as progress:
        uploaded = client.upload(source, name=name, progress=progress)
    hint = f"Uploaded {uploaded.name} ({size(uploaded.bytes)}). Attach it: qd send SESSION TEXT --attach {uploaded.id}"
    return Result(uploaded, str(uploaded.id), hint=hint)


@command(app)
def delete(client: Client, file_id: FileId, yes: Yes = False) -> None:
    """Delete an uploaded file. Sessions to which it was attached keep it. This can't be undone."""
    confirm(lambda: f"Delete {client.get_file(file_id).name}?", yes=yes)
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


def _unpack(client: Client, session_id: UUID, folder: Path, *, force: bool) -> None:
    """What the archive names is not trusted. No link is made: where one leads depends on the links before it."""
    if folder.exists() and not folder.is_dir():
        raise CliError(f"{folder}: not a folder")
    if not force and folder.is_dir() and any(folder.iterdir()):
        raise CliError(f"{folder}: not empty. Use --force to overwrite files in it.")
    written: set[tuple[int, int]] = set()
    with spool() as archive:
        with progress_bar("Downloading all files") as progress:
            client.download_session_archive(session_id, archive, progress=progress)
        archive.seek(0)
        folder.mkdir(parents=True, exist_ok=True)
        with tarfile.open(fileobj=archive, mode="r:gz") as members:
            for member in members:
                fault = _extract(members, member, folder, written)
                if fault is not None:
                    note(f"{member.name}: left out, because it {fault}")
    say(f"wrote {folder} ({count_text(len(written), 'file')})")


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

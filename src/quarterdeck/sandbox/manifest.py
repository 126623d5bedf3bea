"""The files of a session's workspace."""

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from msgspec import Struct


class WorkspaceKind(StrEnum):
    NONE = "none"
    SANDBOX = "sandbox"


class FileKind(StrEnum):
    FILE = "file"
    LINK = "link"
    # Stored only while it is empty.
    FOLDER = "folder"


class StoredFile(Struct, frozen=True, kw_only=True):
    # Relative to the workspace, with `/` between its parts.
    path: str
    kind: FileKind
    # In hex. None: not a file.
    sha256: str | None
    bytes: int
    # Permission bits.
    mode: int
    # The target of a link: a relative path that stays inside the folder.
    target: str | None
    modified_at: datetime


class ManifestFile(StoredFile, frozen=True, kw_only=True):
    """A file of a manifest: with `generation`, its content can be read from the store."""

    # None: not a file.
    generation: UUID | None


class Manifest(Struct, frozen=True):
    # Number of changes of the session's files so far.
    revision: int
    # By path. No file lies at the path of a folder.
    files: list[ManifestFile]


class FileChanges(Struct, frozen=True):
    """What a tool call changed. The contents of written files are in the store."""

    written: list[StoredFile]
    deleted: list[str]

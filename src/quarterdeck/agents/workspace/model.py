"""The files of a session's workspace."""

from datetime import datetime
from enum import StrEnum

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
    # Of a link: a relative path that stays inside the workspace.
    target: str | None
    modified_at: datetime


class FileChanges(Struct, frozen=True):
    """What a tool call changed. The contents of written files are in the store."""

    written: list[StoredFile]
    deleted: list[str]

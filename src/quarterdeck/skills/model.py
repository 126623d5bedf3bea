"""The records of skills, and what can be wrong with a bundle. Standard library and msgspec only.

Nothing here knows where a bundle comes from (an upload, a folder) or who is told about a fault.
"""

from typing import Annotated, Any
from uuid import UUID

from msgspec import Meta, Struct

from quarterdeck.texts import Line, Moment


class CreateSkillBody(Struct, frozen=True):
    name: Line


class SkillBody(Struct, frozen=True):
    id: UUID
    workspace_id: UUID
    name: str
    latest_version: Annotated[int | None, Meta(description="null until a version is pushed.")]
    created_at: Moment


class SkillVersionBody(Struct, frozen=True):
    id: UUID
    skill_id: UUID
    version: Annotated[int, Meta(ge=1, le=2**31 - 1, extra_json_schema={"format": "int32"})]
    bundle_bytes: Annotated[int, Meta(ge=0, extra_json_schema={"format": "int64"})]
    frontmatter: Any
    manifest: Any


class ManifestFile(Struct, frozen=True):
    path: str
    bytes: int
    sha256: str
    executable: bool


class Manifest(Struct, frozen=True):
    """`files` is sorted by path and depends on the content alone, not on the program that packed it."""

    files: list[ManifestFile]
    # What the files hold; headers and padding of the archive are not part of it.
    unpacked_bytes: int
    archive_sha256: str


class Bundle(Struct, frozen=True):
    frontmatter: dict[str, Any]
    manifest: Manifest
    # The archive as it was sent, compressed.
    bundle_bytes: int


class Archive(Struct, frozen=True):
    """Where a version's archive lies in the bundle store."""

    sha256: str
    generation: UUID


class UsableVersion(Struct, frozen=True):
    """The version of a skill that a session uses."""

    skill_id: UUID
    version: int
    frontmatter: dict[str, Any]
    manifest: Manifest
    archive: Archive


class BundleError(Exception):
    """The bundle cannot be accepted. `message` tells who packed it where and why; its parts are for a lint.
    Names come from strangers, so all texts are bounded, printable and without lone surrogates.
    """

    def __init__(self, reason: str, *, path: str | bytes | None = None, line: int | None = None) -> None:
        self.reason = reason
        self.path = None if path is None else shown(path)
        self.line = line
        place = "" if self.path is None else f'"{self.path}"'
        if line is not None:
            place = f"{place}, line {line}" if place else f"line {line}"
        self.message = f"{place}: {reason}" if place else f"{reason[:1].upper()}{reason[1:]}"
        super().__init__(self.message)


def shown(name: str | bytes) -> str:
    """A hostile name made fit for a message: the middle left out when long, what does not print escaped."""
    text = name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else name
    if len(text) > 100:
        text = f"{text[:60]}…{text[-39:]}"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)

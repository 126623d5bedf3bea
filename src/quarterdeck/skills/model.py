"""Records of skills and the error of an invalid bundle. Uses the standard library and msgspec only."""

from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import force_setattr

from quarterdeck.blobs.model import Blob
from quarterdeck.core.actors import ActorBody
from quarterdeck.core.example_ids import ADA, MORNING, SKILL, WORKSPACE
from quarterdeck.core.text_types import Moment, Name, plain_name

Number = Annotated[int, Meta(ge=1, le=2**31 - 1, extra_json_schema={"format": "int32"})]
Bytes = Annotated[int, Meta(ge=0, extra_json_schema={"format": "int64"})]


class CreateSkillBody(Struct, frozen=True):
    name: Name

    def __post_init__(self) -> None:
        force_setattr(self, "name", plain_name(self.name))


class SkillBody(Struct, frozen=True):
    id: UUID
    workspace_id: UUID
    name: str
    description: Annotated[
        str | None, Meta(description="From the SKILL.md of the version that sessions use. null until one is pushed.")
    ]
    latest_version: Annotated[int | None, Meta(description="null until a version is pushed.")]
    default_version: Annotated[
        int | None, Meta(description="What sessions use that pin no version. null: the latest, whichever that is.")
    ]
    revision: Annotated[int, Meta(description="Counts changes and pushes. The ETag is made of it.")]
    archived_at: Annotated[Moment | None, Meta(description="null unless archived.")]
    created_at: Moment
    created_by: ActorBody


class SkillPage(Struct, frozen=True):
    items: list[SkillBody]
    next_cursor: UUID | None


class ChangeSkillBody(Struct, frozen=True):
    """What is left out stays as it is."""

    name: Name | UnsetType = UNSET
    default_version: Annotated[
        Number | UnsetType | None, Meta(description="A version that was pushed. null: follow the latest again.")
    ] = UNSET
    archived: bool | UnsetType = UNSET

    def __post_init__(self) -> None:
        if self.name is not UNSET:
            force_setattr(self, "name", plain_name(self.name))


class SkillVersionBody(Struct, frozen=True):
    id: UUID
    skill_id: UUID
    version: Number
    bundle_bytes: Bytes
    frontmatter: Any
    manifest: Any


class SkillVersionItem(Struct, frozen=True):
    """A version in a list. Without its manifest, which alone can be megabytes."""

    id: UUID
    skill_id: UUID
    version: Number
    bundle_bytes: Bytes
    frontmatter: Any
    created_at: Moment
    created_by: ActorBody


class SkillVersionPage(Struct, frozen=True):
    items: list[SkillVersionItem]
    next_cursor: UUID | None


class SkillFile(Struct, frozen=True):
    path: str
    bytes: int
    sha256: str
    executable: bool


class SkillManifest(Struct, frozen=True):
    """`files` is sorted by path and depends on the content alone, not on the program that packed it."""

    files: list[SkillFile]
    # The sum of the file sizes, without headers and padding.
    unpacked_bytes: int
    archive_sha256: str


class Bundle(Struct, frozen=True):
    frontmatter: dict[str, Any]
    manifest: SkillManifest
    # Size of the compressed archive.
    bundle_bytes: int
    # Where the contents of the files start, by SHA-256, if they are written one after the other.
    starts: dict[str, int]


class StoredVersion(Struct, frozen=True):
    body: SkillVersionBody
    skill_name: str
    workspace_id: UUID
    archive: Blob

    @property
    def files(self) -> list[SkillFile]:
        return msgspec.json.decode(self.body.manifest, type=SkillManifest).files


class UsableVersion(Struct, frozen=True):
    """The version of a skill that a session uses. Without its manifest, which alone can be megabytes."""

    skill_id: UUID
    version: int
    name: str
    description: str
    # Its SHA-256.
    archive: str


class FileChange(StrEnum):
    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


class WhyNoDiff(StrEnum):
    BINARY = "binary"
    TOO_LARGE = "too_large"


class FileDiffBody(Struct, frozen=True):
    path: str
    change: FileChange
    base_bytes: Annotated[int | None, Meta(description="null where the file was added.")]
    head_bytes: Annotated[int | None, Meta(description="null where the file was removed.")]
    executable_changed: Annotated[bool, Meta(description="Whether only one of the two may be executed.")]
    diff: Annotated[
        str | None,
        Meta(
            description="Unified, as `patch -p1` takes it. Empty where the content is the same; null where it is not "
            "text or too large."
        ),
    ]
    why_no_diff: Annotated[WhyNoDiff | None, Meta(description="null where there is a diff.")]


class SkillDiffBody(Struct, frozen=True):
    base: Number
    head: Number
    files: Annotated[list[FileDiffBody], Meta(description="By path. Empty where the versions hold the same files.")]
    truncated: Annotated[bool, Meta(description="Whether more files differ than are listed.")]


class BundleError(Exception):
    """The bundle is rejected. `message` says where and why; `qd skills lint` uses the parts. Names are untrusted, so
    all texts are bounded, printable and without lone surrogates.
    """

    def __init__(self, reason: str, *, path: str | bytes | None = None, line: int | None = None) -> None:
        self.reason = reason
        self.path = None if path is None else shown(path)
        self.line = line
        location = "" if self.path is None else f'"{self.path}"'
        if line is not None:
            location = f"{location}, line {line}" if location else f"line {line}"
        self.message = f"{location}: {reason}" if location else f"{reason[:1].upper()}{reason[1:]}"
        super().__init__(self.message)


def shown(name: str | bytes) -> str:
    """An untrusted name for use in a message: shortened in the middle, non-printable characters escaped."""
    text = name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else name
    if len(text) > 100:
        text = f"{text[:60]}…{text[-39:]}"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


_VERSION = UUID("0192f0da-6f3c-7b18-8d94-4e1a7c5f2b08")
_FRONTMATTER = {"name": "incident-report", "description": "Writes the weekly incident report."}

_MANIFEST = SkillManifest(
    files=[
        SkillFile("SKILL.md", 812, "5c1e0a4be2f7d3968a0b4c7d1e2f3a5b6c7d8e9f0a1b2c3d4e5f60718293a4b5", False),
        SkillFile("run.sh", 240, "a94f5374fce5edbc8e2a8697c15331677e6ebf0b1c2d3e4f5061728394a5b6c7", True),
    ],
    unpacked_bytes=1052,
    archive_sha256="9b74c9897bac770ffc029102a200c5de1f2e3d4c5b6a79880716253443526170",
)

_SKILL = SkillBody(
    id=SKILL,
    workspace_id=WORKSPACE,
    name="incident-report",
    description="Writes the weekly incident report.",
    latest_version=2,
    default_version=1,
    revision=4,
    archived_at=None,
    created_at=MORNING,
    created_by=ADA,
)

EXAMPLES = (
    CreateSkillBody("incident-report"),
    _SKILL,
    SkillPage([_SKILL], None),
    ChangeSkillBody(default_version=1),
    SkillVersionBody(
        id=_VERSION, skill_id=SKILL, version=1, bundle_bytes=743, frontmatter=_FRONTMATTER, manifest=_MANIFEST
    ),
    SkillVersionPage(
        [
            SkillVersionItem(
                id=_VERSION,
                skill_id=SKILL,
                version=1,
                bundle_bytes=743,
                frontmatter=_FRONTMATTER,
                created_at=MORNING,
                created_by=ADA,
            )
        ],
        None,
    ),
    SkillDiffBody(
        base=1,
        head=2,
        files=[
            FileDiffBody(
                path="run.sh",
                change=FileChange.CHANGED,
                base_bytes=18,
                head_bytes=21,
                executable_changed=False,
                diff="--- a/run.sh\n+++ b/run.sh\n@@ -1,2 +1,2 @@\n #!/bin/sh\n-echo hi\n+echo hello\n",
                why_no_diff=None,
            )
        ],
        truncated=False,
    ),
)

"""Uploaded files. Their contents are blobs, so two files with the same content are stored once."""

from typing import Annotated
from uuid import UUID

from msgspec import Meta, Struct

from quarterdeck.blobs.model import Blob
from quarterdeck.core.actors import ActorBody
from quarterdeck.core.example_ids import ADA, FILE, MORNING, WORKSPACE
from quarterdeck.core.text_types import Moment


class FileBody(Struct, frozen=True):
    id: UUID
    workspace_id: UUID
    name: str
    media_type: Annotated[str, Meta(description="Found from the content. Never a guess that the content contradicts.")]
    bytes: int
    sha256: Annotated[str, Meta(description="Of the content, in hex.")]
    created_at: Moment
    created_by: ActorBody


class UploadedFile(Struct, frozen=True):
    body: FileBody
    blob: Blob


class Upload(Struct, frozen=True):
    """What was received, beside the content. Two uploads are the same request if they are equal."""

    name: str
    media_type: str
    bytes: int
    sha256: str


EXAMPLES = (
    FileBody(
        id=FILE,
        workspace_id=WORKSPACE,
        name="incidents.csv",
        media_type="text/csv",
        bytes=48_213,
        sha256="2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
        created_at=MORNING,
        created_by=ADA,
    ),
)

"""HTTP handlers of skills."""

from functools import partial
from typing import Annotated
from uuid import UUID

from msgspec import Meta
from starlette.responses import Response

from quarterdeck.auth.access import Access
from quarterdeck.blobs import service as blobs
from quarterdeck.blobs.blob_store import BlobStore
from quarterdeck.changes.perform import Changes
from quarterdeck.core import errors
from quarterdeck.core.actors import Permission
from quarterdeck.core.call import Answer, Call
from quarterdeck.core.operation import ErrorCase, Payload, Query, operation
from quarterdeck.core.settings import BundleSettings
from quarterdeck.db.database import Database
from quarterdeck.http.downloads import DownloadContent, Downloads, safe_name
from quarterdeck.http.request import BYTES, GZIP, Request
from quarterdeck.skills import service
from quarterdeck.skills.model import SkillVersionBody
from quarterdeck.skills.uploads import Uploads


class SkillFileQuery(Query, frozen=True):
    path: Annotated[
        str,
        Meta(
            min_length=1,
            pattern=r"^[^\u0000]+$",
            description="Path of the file, as in the manifest.",
            examples=["SKILL.md"],
        ),
    ]


@operation(
    summary="Push a new version of a skill",
    description="A gzipped tar of the bundle's folder, SKILL.md at its root. Versions count from 1 without gaps.",
    permission=Permission.SKILL_MANAGE,
    upload=Payload.GZIP,
    created=True,
    success="The new version.",
    idempotent=True,
    conditional=True,
    refusals=(
        ErrorCase(
            "archived",
            errors.conflict(service.rules.archived),
            "The skill is archived.",
            "Unarchive it by setting `archived` to false.",
        ),
    ),
    trusted_job=True,
)
async def push_skill_version(
    request: Request,
    access: Access,
    changes: Changes,
    database: Database,
    settings: BundleSettings,
    uploads: Uploads,
    blob_store: BlobStore,
    call: Call[None],
    skill_id: UUID,
) -> Answer[SkillVersionBody]:
    archive = request.body_stream(settings.request_bytes)
    return await service.push_skill_version(access, changes, database, uploads, blob_store, call, skill_id, archive)


@operation(
    summary="Download the bundle of a version",
    description="The archive, byte for byte as it was pushed. Resume an interrupted download with Range.",
    permission=Permission.WORKSPACE_READ,
    download=GZIP,
    success="The archive.",
)
async def download_skill_bundle(
    request: Request,
    access: Access,
    blob_store: BlobStore,
    downloads: Downloads,
    call: Call[None],
    skill_id: UUID,
    version: int,
) -> Response:
    found = await service.find_version(access, call, skill_id, version)
    content = DownloadContent(
        media_type=GZIP,
        sha256=found.archive.sha256,
        size=found.body.bundle_bytes,
        file_name=f"{safe_name(found.skill_name)}-{version}.tar.gz",
        pieces=partial(blobs.pieces, blob_store, found.archive, found.body.bundle_bytes),
    )
    return downloads.respond(request, content)


@operation(
    summary="Download one file of a version",
    description="The manifest of the version lists its files.",
    permission=Permission.WORKSPACE_READ,
    download=BYTES,
    success="The file.",
    refusals=(
        ErrorCase(
            "no_file", errors.not_found("file"), "The version has no such file.", "See the manifest of the version."
        ),
    ),
)
async def download_skill_file(
    request: Request,
    access: Access,
    blob_store: BlobStore,
    downloads: Downloads,
    call: Call[None],
    skill_id: UUID,
    version: int,
    query: SkillFileQuery,
) -> Response:
    file, blob = await service.find_skill_file(access, call, skill_id, version, query.path)
    content = DownloadContent(
        # For every file: a browser must never render one as a page of this server.
        media_type=BYTES,
        sha256=file.sha256,
        size=file.bytes,
        file_name=safe_name(query.path.rpartition("/")[2]),
        pieces=partial(blobs.pieces, blob_store, blob, file.bytes),
    )
    return downloads.respond(request, content)

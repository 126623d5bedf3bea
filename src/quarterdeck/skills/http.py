"""HTTP handlers of skills."""

from functools import partial

from starlette.responses import Response

from quarterdeck.auth.access import Access
from quarterdeck.blobs import service as blobs
from quarterdeck.blobs.blob_store import BlobStore
from quarterdeck.changes.perform import Changes
from quarterdeck.core import errors
from quarterdeck.core.actors import Permission
from quarterdeck.core.call import Answer
from quarterdeck.core.settings import BundleSettings
from quarterdeck.db.database import Database
from quarterdeck.http.downloads import Content, Downloads, safe_name
from quarterdeck.http.operation import Payload, Query, Refusal, operation
from quarterdeck.http.request import BYTES, GZIP, Request
from quarterdeck.http.schemas import NUMBER
from quarterdeck.skills import rules, service
from quarterdeck.skills.bundle_files import BundleFiles
from quarterdeck.skills.model import (
    ChangeSkillBody,
    CreateSkillBody,
    SkillBody,
    SkillDiffBody,
    SkillPage,
    SkillVersionBody,
    SkillVersionPage,
)
from quarterdeck.skills.uploads import Uploads

_NAME_TAKEN = Refusal(
    "name_taken",
    errors.conflict(rules.NAME_TAKEN),
    "Another active skill of the workspace has this name.",
    "Choose another name, or push a version to that skill.",
)


@operation(
    summary="Create a skill",
    description="Its name is unique among the active skills of the workspace. Its content comes with its versions.",
    permission=Permission.SKILL_MANAGE,
    payload=CreateSkillBody,
    success_status=201,
    success_type=SkillBody,
    success="The new skill.",
    etag=True,
    idempotent=True,
    refusals=(_NAME_TAKEN,),
)
async def create_skill(request: Request, changes: Changes) -> Answer:
    return await service.create_skill(changes, await request.call(CreateSkillBody))


@operation(
    summary="List the skills of a workspace",
    description="One page per call, newest first unless order=asc. Archived skills are listed separately.",
    permission=Permission.WORKSPACE_READ,
    success_type=SkillPage,
    success="One page. next_cursor is null on the last.",
    paged=True,
    cursor_must_exist=False,
    queries=(Query("archived", {"type": "boolean", "default": False}, "List archived skills instead."),),
)
async def list_skills(request: Request, access: Access) -> SkillPage:
    page, archived = request.page_request(), request.query_flag("archived")
    return await service.list_skills(access, request.call_without_body(), page, archived=archived)


@operation(
    summary="Get a skill",
    permission=Permission.WORKSPACE_READ,
    success_type=SkillBody,
    success="The skill.",
    etag=True,
)
async def get_skill(request: Request, access: Access) -> SkillBody:
    skill_id = request.path_id("skill_id")
    return await service.get_skill(access, request.call_without_body(), skill_id)


@operation(
    summary="Change a skill",
    description="Omitted fields keep their values. Set `default_version` to roll back: sessions that pin no version "
    "use it from their next run on. An archived skill accepts no versions and no new sessions; sessions that use it "
    "keep it. Another skill can take its name; then it needs a new one to be restored.",
    permission=Permission.SKILL_MANAGE,
    payload=ChangeSkillBody,
    success_type=SkillBody,
    success="The updated skill.",
    etag=True,
    conditional=True,
    idempotent=True,
    refusals=(_NAME_TAKEN,),
)
async def change_skill(request: Request, changes: Changes) -> Answer:
    skill_id = request.path_id("skill_id")
    return await service.change_skill(changes, await request.call(ChangeSkillBody), skill_id)


@operation(
    summary="Delete a skill",
    description="With its versions, permanently. Only a skill that no session and no version of an agent uses, "
    "archived ones included. Repeating the request is 404.",
    permission=Permission.SKILL_MANAGE,
    success_status=204,
    success_type=None,
    success="The skill is deleted.",
    conditional=True,
    refusals=(
        Refusal(
            "in_use",
            errors.conflict(rules.IN_USE),
            "A session or a version of an agent uses the skill.",
            "Archive the skill, or remove it from its sessions. Versions of agents keep their skills.",
        ),
    ),
)
async def delete_skill(request: Request, changes: Changes) -> Answer:
    skill_id = request.path_id("skill_id")
    return await service.delete_skill(changes, request.call_without_body(), skill_id)


@operation(
    summary="Push a new version of a skill",
    description="A gzipped tar of the bundle's folder, SKILL.md at its root. Versions count from 1 without gaps.",
    permission=Permission.SKILL_MANAGE,
    payload=Payload.GZIP,
    success_status=201,
    success_type=SkillVersionBody,
    success="The new version.",
    idempotent=True,
    conditional=True,
    refusals=(
        Refusal(
            "archived",
            errors.conflict(rules.ARCHIVED),
            "The skill is archived.",
            "Unarchive it by setting `archived` to false.",
        ),
    ),
)
async def push_skill_version(
    request: Request,
    access: Access,
    changes: Changes,
    database: Database,
    settings: BundleSettings,
    uploads: Uploads,
    bundles: BlobStore,
) -> Answer:
    skill_id = request.path_id("skill_id")
    call = request.call_without_body(gzip=True)
    archive = request.body_stream(settings.request_bytes)
    return await service.push_skill_version(access, changes, database, uploads, bundles, call, skill_id, archive)


@operation(
    summary="List the versions of a skill",
    description="By number, newest first unless order=asc. Manifests are left out; get a version for its manifest.",
    permission=Permission.WORKSPACE_READ,
    success_type=SkillVersionPage,
    success="One page. next_cursor is null on the last.",
    paged=True,
)
async def list_skill_versions(request: Request, access: Access) -> SkillVersionPage:
    skill_id, page = request.path_id("skill_id"), request.page_request()
    return await service.list_skill_versions(access, request.call_without_body(), skill_id, page)


@operation(
    summary="Get a version of a skill",
    description="Identical to the response of the push.",
    permission=Permission.WORKSPACE_READ,
    success_type=SkillVersionBody,
    success="The version.",
)
async def get_skill_version(request: Request, access: Access) -> SkillVersionBody:
    skill_id, number = request.path_id("skill_id"), request.path_number("version")
    return (await service.get_skill_version(access, request.call_without_body(), skill_id, number)).body


@operation(
    summary="Download the bundle of a version",
    description="The archive, byte for byte as it was pushed. Resume an interrupted download with Range.",
    permission=Permission.WORKSPACE_READ,
    download=GZIP,
    success="The archive.",
)
async def download_skill_bundle(request: Request, access: Access, bundles: BlobStore, downloads: Downloads) -> Response:
    skill_id, number = request.path_id("skill_id"), request.path_number("version")
    version = await service.get_skill_version(access, request.call_without_body(), skill_id, number)
    content = Content(
        media_type=GZIP,
        sha256=version.archive.sha256,
        size=version.body.bundle_bytes,
        file_name=f"{safe_name(version.skill_name)}-{number}.tar.gz",
        pieces=partial(blobs.pieces, bundles, version.archive),
    )
    return downloads.respond(request, content)


@operation(
    summary="Download one file of a version",
    description="The manifest of the version lists its files.",
    permission=Permission.WORKSPACE_READ,
    download=BYTES,
    success="The file.",
    queries=(
        Query(
            "path",
            {"type": "string", "minLength": 1, "pattern": r"^[^\u0000]+$"},
            "Path of the file, as in the manifest.",
            required=True,
            example="SKILL.md",
        ),
    ),
    refusals=(
        Refusal(
            "no_file", errors.not_found("file"), "The version has no such file.", "See the manifest of the version."
        ),
    ),
)
async def download_skill_file(
    request: Request,
    access: Access,
    files: BundleFiles,
    downloads: Downloads,
) -> Response:
    skill_id, number = request.path_id("skill_id"), request.path_number("version")
    path = request.query_text("path", required=True) or ""
    version = await service.get_skill_version(access, request.call_without_body(), skill_id, number)
    bundle = service.stored_bundle(version)
    file = service.file_of(bundle, path)
    content = Content(
        # For every file: a browser must never render one as a page of this server.
        media_type=BYTES,
        sha256=file.sha256,
        size=file.bytes,
        file_name=safe_name(path.rpartition("/")[2]),
        pieces=partial(files.pieces, bundle, file),
    )
    return downloads.respond(request, content)


@operation(
    summary="Compare two versions of a skill",
    description="Which files were added, removed or changed from `base` to `head`, with the lines of text files.",
    permission=Permission.WORKSPACE_READ,
    success_type=SkillDiffBody,
    success="The differences.",
    queries=(
        Query("base", NUMBER, "Number of the old version.", required=True, example=1),
        Query("head", NUMBER, "Number of the new version.", required=True, example=2),
    ),
    refusals=(
        Refusal(
            "no_version",
            errors.not_found("skill version"),
            "The skill has no version with one of these numbers.",
            "List the versions of the skill.",
        ),
    ),
)
async def diff_skill_versions(
    request: Request, access: Access, settings: BundleSettings, uploads: Uploads, files: BundleFiles
) -> SkillDiffBody:
    skill_id = request.path_id("skill_id")
    # A missing number is recorded as a fault, which is raised before the number is used.
    base = request.query_number("base", required=True) or 0
    head = request.query_number("head", required=True) or 0
    return await service.diff_skill_versions(
        access, settings, uploads, files, request.call_without_body(), skill_id, base, head
    )

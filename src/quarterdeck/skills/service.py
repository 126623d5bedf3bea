"""Operations on skills and their versions."""

from collections.abc import AsyncIterator
from typing import cast
from uuid import UUID

import msgspec
from msgspec.structs import replace

from quarterdeck.auth.access import Access, Lookup, visible_record, visible_workspace
from quarterdeck.blobs import service as blobs
from quarterdeck.blobs.blob_store import BlobStore
from quarterdeck.blobs.model import Blob
from quarterdeck.changes.model import ObjectType
from quarterdeck.changes.perform import Changes, Made
from quarterdeck.core import errors
from quarterdeck.core.actors import Permission, Principal
from quarterdeck.core.call import Answer, Call
from quarterdeck.core.ids import new_id
from quarterdeck.core.operation import ArchivedQuery, ErrorCase, VersionsQuery, operation
from quarterdeck.core.pages import PageRequest
from quarterdeck.core.settings import BundleSettings
from quarterdeck.core.versioned import VersionRules
from quarterdeck.db.database import Connection, Database
from quarterdeck.skills import store
from quarterdeck.skills.model import (
    BundleError,
    ChangeSkillBody,
    CreateSkillBody,
    SkillBody,
    SkillDiffBody,
    SkillFile,
    SkillPage,
    SkillVersionBody,
    SkillVersionPage,
    StoredVersion,
)
from quarterdeck.skills.uploads import Uploads
from quarterdeck.skills.version_diff import compare

rules = VersionRules("A skill")
_IN_USE = (
    "This skill is used by a session or a version of an agent. Archive it instead, or remove it from its sessions. "
    "Versions of agents keep their skills."
)
_NAME_TAKEN = ErrorCase(
    "name_taken",
    errors.conflict(rules.name_taken),
    "Another active skill of the workspace has this name.",
    "Choose another name, or push a version to that skill.",
)


@operation(
    summary="Create a skill",
    description="Its name is unique among the active skills of the workspace. Its content comes with its versions.",
    permission=Permission.SKILL_MANAGE,
    created=True,
    success="The new skill.",
    etag=True,
    idempotent=True,
    refusals=(_NAME_TAKEN,),
)
async def create_skill(changes: Changes, call: Call[CreateSkillBody]) -> Answer[SkillBody]:
    async def effect(connection: Connection, principal: Principal, workspace_id: UUID, body: CreateSkillBody) -> Made:
        skill_id = new_id()
        await _check_name_free(connection, workspace_id, body.name)
        await store.add(connection, skill_id, workspace_id, body.name, principal.user_id)
        skill = await store.get(connection, workspace_id, skill_id)
        assert skill is not None
        return Made.plain(skill, skill_id, body.name, name=body.name)

    return await changes.perform(call, visible_workspace(call), ObjectType.SKILL, effect)


@operation(
    summary="List the skills of a workspace",
    description="One page per call, newest first unless order=asc. Archived skills are listed separately.",
    permission=Permission.WORKSPACE_READ,
    success="One page. next_cursor is null on the last.",
    cursor_must_exist=False,
)
async def list_skills(access: Access, call: Call[None], request: PageRequest, query: ArchivedQuery) -> SkillPage:
    return await access.page(call, visible_workspace(call), SkillPage, request, store.page, filter_key=query.archived)


@operation(
    summary="Get a skill",
    permission=Permission.WORKSPACE_READ,
    success="The skill.",
    etag=True,
    trusted_job=True,
)
async def get_skill(access: Access, call: Call[None], skill_id: UUID) -> SkillBody:
    return await access.find(call, visible_record(call, "skill", store.get, skill_id))


@operation(
    summary="Change a skill",
    description="Omitted fields keep their values. Set `default_version` to roll back: sessions that pin no version "
    "use it from their next run on. An archived skill accepts no versions and no new sessions; sessions that use it "
    "keep it. Another skill can take its name; then it needs a new one to be restored.",
    permission=Permission.SKILL_MANAGE,
    success="The updated skill.",
    etag=True,
    conditional=True,
    idempotent=True,
    refusals=(_NAME_TAKEN,),
)
async def change_skill(changes: Changes, call: Call[ChangeSkillBody], skill_id: UUID) -> Answer[SkillBody]:
    """A request that changes nothing keeps the revision and writes no audit entry."""

    async def effect(connection: Connection, principal: Principal, _: SkillBody, body: ChangeSkillBody) -> Made:
        workspace_id = principal.workspace_id
        # A separate statement, so that the next one sees what the previous holder of the lock committed.
        state = errors.existing(await store.lock(connection, workspace_id, skill_id), "skill")
        call.check_unchanged(state.revision)
        changes = rules.changed(state, body)
        new = msgspec.structs.replace(state, **changes)
        rules.check_default_version(new)
        if rules.needs_free_name(state, new):
            await _check_name_free(connection, workspace_id, new.name)
        if changes:
            await store.change(connection, workspace_id, skill_id, new)
        skill = await store.get(connection, workspace_id, skill_id)
        return Made(
            shown=skill,
            kept=skill,
            object_id=skill_id,
            object_name=new.name,
            detail=changes,
            changed=bool(changes),
        )

    return await changes.perform(call, visible_record(call, "skill", store.get, skill_id), ObjectType.SKILL, effect)


@operation(
    summary="Delete a skill",
    description="With its versions, permanently. Only a skill that no session and no version of an agent uses, "
    "archived ones included. Repeating the request is 404.",
    permission=Permission.SKILL_MANAGE,
    success="The skill is deleted.",
    conditional=True,
    refusals=(
        ErrorCase(
            "in_use",
            errors.conflict(_IN_USE),
            "A session or a version of an agent uses the skill.",
            "Archive the skill, or remove it from its sessions. Versions of agents keep their skills.",
        ),
    ),
)
async def delete_skill(changes: Changes, call: Call[None], skill_id: UUID) -> Answer[None]:
    """Deletes an unused skill with its versions. The sweep deletes their archives."""

    async def effect(connection: Connection, principal: Principal, _: SkillBody, __: None) -> Made:
        workspace_id = principal.workspace_id
        state = errors.existing(await store.lock_to_delete(connection, workspace_id, skill_id), "skill")
        call.check_unchanged(state.revision)
        # A statement of its own: it must see sessions and versions that were committed while the lock was waited for.
        if await store.is_in_use(connection, workspace_id, skill_id):
            raise errors.conflict(_IN_USE)
        await store.delete(connection, workspace_id, skill_id)
        detail = {"name": state.name, "latest_version": state.latest_version or None}
        return Made(shown=None, kept=None, object_id=skill_id, object_name=state.name, detail=detail)

    return await changes.perform(call, visible_record(call, "skill", store.get, skill_id), ObjectType.SKILL, effect)


async def push_skill_version(
    access: Access,
    changes: Changes,
    database: Database,
    uploads: Uploads,
    blob_store: BlobStore,
    call: Call[None],
    skill_id: UUID,
    archive: AsyncIterator[bytes],
) -> Answer[SkillVersionBody]:
    """Check the caller before reading a byte, and again with the write: the body may take a minute.

    The archive and its files are stored before the rows. A crash between the two leaves blobs without a reference,
    which the sweep removes."""
    lookup = visible_record(call, "skill", store.get, skill_id)
    skill = await access.find(call, lookup)
    async with uploads.receive(skill.workspace_id) as upload:
        async for chunk in archive:
            upload.archive.write(chunk)
        try:
            bundle = await uploads.scan(skill.workspace_id, upload)
        except BundleError as fault:
            raise errors.invalid(fault.message) from fault
        for contents in upload.contents(bundle):
            await blobs.put(database, blob_store, contents, call.owner)

    async def effect(connection: Connection, principal: Principal, _: SkillBody, __: str) -> Made:
        version_id, workspace_id = new_id(), principal.workspace_id
        added = await store.add_version(connection, version_id, workspace_id, skill_id, bundle, principal.user_id)
        before = errors.existing(added, "skill")
        # Raising rolls the new version back.
        call.check_unchanged(before.revision)
        rules.check_takes_versions(before)
        version = before.latest_version + 1
        made = SkillVersionBody(version_id, skill_id, version, bundle.bundle_bytes, bundle.frontmatter, bundle.manifest)
        return Made.plain(made, version_id, before.name, skill_id=str(skill_id), version=version)

    # Two pushes are the same request if their archives have the same bytes.
    archive_sha256 = bundle.manifest.archive_sha256
    return await changes.perform(
        cast("Call[str]", replace(call, read_body=lambda: archive_sha256)), lookup, ObjectType.SKILL_VERSION, effect
    )


@operation(
    summary="List the versions of a skill",
    description="By number, newest first unless order=asc. Manifests are left out; get a version for its manifest.",
    permission=Permission.WORKSPACE_READ,
    success="One page. next_cursor is null on the last.",
    trusted_job=True,
)
async def list_skill_versions(
    access: Access, call: Call[None], skill_id: UUID, request: PageRequest
) -> SkillVersionPage:
    lookup = visible_record(call, "skill", store.get, skill_id)
    return await access.page(call, lookup, SkillVersionPage, request, store.versions)


@operation(
    summary="Get a version of a skill",
    description="Identical to the response of the push.",
    permission=Permission.WORKSPACE_READ,
    success="The version.",
    trusted_job=True,
)
async def get_skill_version(access: Access, call: Call[None], skill_id: UUID, version: int) -> SkillVersionBody:
    return (await find_version(access, call, skill_id, version)).body


async def find_version(access: Access, call: Call[None], skill_id: UUID, version: int) -> StoredVersion:
    return await access.find(call, _visible_version(call, skill_id, version))


@operation(
    summary="Compare two versions of a skill",
    description="Which files were added, removed or changed from `base` to `head`, with the lines of text files.",
    permission=Permission.WORKSPACE_READ,
    success="The differences.",
    refusals=(
        ErrorCase(
            "no_version",
            errors.not_found("skill version"),
            "The skill has no version with one of these numbers.",
            "List the versions of the skill.",
        ),
    ),
)
async def diff_skill_versions(
    access: Access,
    database: Database,
    settings: BundleSettings,
    uploads: Uploads,
    blob_store: BlobStore,
    call: Call[None],
    skill_id: UUID,
    query: VersionsQuery,
) -> SkillDiffBody:
    base, head = (_visible_version(call, skill_id, number) for number in (query.base, query.head))

    async def lookup(connection: Connection, principal: Principal) -> tuple[StoredVersion, StoredVersion]:
        return await base(connection, principal), await head(connection, principal)

    before, after = await access.find(call, lookup)
    workspace_id = before.workspace_id
    async with uploads.comparing(workspace_id):
        comparison = await uploads.compare(workspace_id, lambda: compare(before.files, after.files, settings))
        contents = await blobs.read_all(database, blob_store, comparison.wanted, workspace_id)
        return await uploads.compare(workspace_id, lambda: comparison.diff(query.base, query.head, contents))


async def find_skill_file(
    access: Access, call: Call[None], skill_id: UUID, version: int, path: str
) -> tuple[SkillFile, Blob]:
    async def show(connection: Connection, _: Principal, found: StoredVersion) -> tuple[SkillFile, Blob]:
        file = errors.existing(next((file for file in found.files if file.path == path), None), "file")
        return file, (await blobs.find(connection, [file.sha256]))[file.sha256]

    return await access.read(call, _visible_version(call, skill_id, version), show)


# For other packages, which use no store of this one.
of_session, used_versions, stored_archives = store.of_session, store.used_versions, store.stored_archives
get_stored = store.get


async def files_of(connection: Connection, workspace_id: UUID, skill_id: UUID, version: int) -> list[SkillFile]:
    found = await store.version(connection, workspace_id, skill_id, version)
    return [] if found is None else found.files


async def check_usable(connection: Connection, workspace_id: UUID, skill_id: UUID, version: int | None) -> None:
    """Raise if a session cannot add the skill. Sessions that already use an archived skill keep it. A usable skill
    cannot be deleted until the transaction ends."""
    state = await store.usable(connection, workspace_id, skill_id)
    if state is None:
        raise errors.invalid("No such skill in this workspace.")
    rules.check_usable(state.latest_version, version, is_archived=state.archived)


async def _check_name_free(connection: Connection, workspace_id: UUID, name: str) -> None:
    """For a clear message. Of two concurrent changes the index refuses the second, which then comes here again."""
    if await store.is_name_taken(connection, workspace_id, name):
        raise errors.conflict(rules.name_taken)


def _visible_version(call: Call[None], skill_id: UUID, number: int) -> Lookup[StoredVersion]:
    visible_skill = visible_record(call, "skill", store.get, skill_id)

    async def lookup(connection: Connection, principal: Principal) -> StoredVersion:
        await visible_skill(connection, principal)
        found = await store.version(connection, principal.workspace_id, skill_id, number)
        return errors.existing(found, "skill version")

    return lookup

"""Operations on skills and their versions."""

from collections.abc import AsyncIterator, Sequence
from typing import cast
from uuid import UUID

import msgspec
from msgspec.structs import replace

from quarterdeck.auth.access import Access, Lookup, visible_workspace
from quarterdeck.blobs import service as blobs
from quarterdeck.blobs.blob_store import BlobStore
from quarterdeck.blobs.service import NewBlob
from quarterdeck.changes.audit.model import ObjectType
from quarterdeck.changes.perform import Changes, Made
from quarterdeck.core import errors
from quarterdeck.core.actors import Permission, Principal
from quarterdeck.core.call import Answer, Call
from quarterdeck.core.ids import new_id
from quarterdeck.core.pages import PageRequest, take_page
from quarterdeck.core.settings import BundleSettings
from quarterdeck.db.database import Connection, Database
from quarterdeck.skills import rules, store
from quarterdeck.skills.bundle_files import BundleFiles
from quarterdeck.skills.model import (
    BundleError,
    ChangeSkillBody,
    CreateSkillBody,
    Manifest,
    ManifestFile,
    SkillBody,
    SkillDiffBody,
    SkillPage,
    SkillState,
    SkillVersionBody,
    SkillVersionItem,
    SkillVersionPage,
    StoredBundle,
    StoredVersion,
    UsableVersion,
)
from quarterdeck.skills.uploads import Uploads
from quarterdeck.skills.version_diff import Comparison, compare


async def create_skill(changes: Changes, call: Call[CreateSkillBody]) -> Answer:
    async def effect(connection: Connection, principal: Principal, workspace_id: UUID, body: CreateSkillBody) -> Made:
        skill_id = new_id()
        await _check_name_free(connection, workspace_id, body.name)
        await store.add(connection, skill_id, workspace_id, body.name, principal.user_id)
        skill = await store.get(connection, workspace_id, skill_id)
        assert skill is not None
        return Made.plain(skill, skill_id, body.name, name=body.name)

    return await changes.perform(
        call,
        operation="create_skill",
        lookup=visible_workspace(call.workspace_id),
        permission=Permission.SKILL_MANAGE,
        resource=(),
        about=ObjectType.SKILL,
        effect=effect,
    )


async def list_skills(access: Access, call: Call[None], request: PageRequest, *, archived: bool) -> SkillPage:
    async def show(connection: Connection, _: Principal, workspace_id: UUID) -> SkillPage:
        async def fetch(start: UUID, count: int) -> list[SkillBody]:
            first = request.newest_first
            return await store.page(connection, workspace_id, start, count, archived=archived, newest_first=first)

        items, next_cursor = await take_page(request, fetch, cursor_must_exist=False)
        return SkillPage(items, next_cursor)

    return await access.read(call, visible_workspace(call.workspace_id), Permission.WORKSPACE_READ, show)


async def get_skill(access: Access, call: Call[None], skill_id: UUID) -> SkillBody:
    return await access.find(call, _visible_skill(call.workspace_id, skill_id), Permission.WORKSPACE_READ)


async def change_skill(changes: Changes, call: Call[ChangeSkillBody], skill_id: UUID) -> Answer:
    """A request that changes nothing keeps the revision and writes no audit entry."""

    async def effect(connection: Connection, principal: Principal, _: SkillBody, body: ChangeSkillBody) -> Made:
        workspace_id = principal.workspace_id
        # A separate statement, so that the next one sees what the previous holder of the lock committed.
        state = _existing(await store.lock(connection, workspace_id, skill_id))
        call.check_unchanged(state.revision)
        changes = rules.changed(state, body)
        new = msgspec.structs.replace(state, **changes)
        rules.check_default_version(new)
        if rules.needs_free_name(state, new):
            await _check_name_free(connection, workspace_id, new.name)
        if changes:
            await store.change(connection, workspace_id, skill_id, new.name, new.default_version, archived=new.archived)
        skill = await store.get(connection, workspace_id, skill_id)
        return Made(
            shown=skill,
            kept=skill,
            object_id=skill_id,
            object_name=new.name,
            detail=changes,
            changed=bool(changes),
        )

    return await changes.perform(
        call,
        operation="change_skill",
        lookup=_visible_skill(call.workspace_id, skill_id),
        permission=Permission.SKILL_MANAGE,
        resource=(skill_id,),
        about=ObjectType.SKILL,
        effect=effect,
    )


async def delete_skill(changes: Changes, call: Call[None], skill_id: UUID) -> Answer:
    """Deletes an unused skill with its versions. The sweep deletes their archives."""

    async def effect(connection: Connection, principal: Principal, _: SkillBody, __: None) -> Made:
        workspace_id = principal.workspace_id
        state = _existing(await store.lock_to_delete(connection, workspace_id, skill_id))
        call.check_unchanged(state.revision)
        # A statement of its own: it must see sessions and versions that were committed while the lock was waited for.
        rules.check_unused(in_use=await store.is_in_use(connection, workspace_id, skill_id))
        await store.delete(connection, workspace_id, skill_id)
        detail = {"name": state.name, "latest_version": state.latest_version or None}
        return Made(shown=None, kept=None, object_id=skill_id, object_name=state.name, detail=detail)

    return await changes.perform(
        call,
        operation="delete_skill",
        lookup=_visible_skill(call.workspace_id, skill_id),
        permission=Permission.SKILL_MANAGE,
        resource=(skill_id,),
        about=ObjectType.SKILL,
        effect=effect,
    )


async def push_skill_version(
    access: Access,
    changes: Changes,
    database: Database,
    uploads: Uploads,
    bundles: BlobStore,
    call: Call[None],
    skill_id: UUID,
    archive: AsyncIterator[bytes],
) -> Answer:
    """Check the caller before reading a byte, and again with the write: the body may take a minute.

    The archive is stored before its row. A crash between the two leaves an unreferenced archive, which the sweep
    removes."""
    lookup = _visible_skill(call.workspace_id, skill_id)
    skill = await access.find(call, lookup, Permission.SKILL_MANAGE)
    async with uploads.spool(skill.workspace_id) as spool:
        async for chunk in archive:
            spool.write(chunk)
        try:
            bundle = await uploads.scan(skill.workspace_id, spool)
        except BundleError as fault:
            raise errors.invalid(fault.message) from fault
        content = NewBlob(spool, bundle.bundle_bytes)
        await blobs.put(database, bundles, {bundle.manifest.archive_sha256: content}, call.owner)

    async def effect(connection: Connection, principal: Principal, _: SkillBody, __: str) -> Made:
        version_id, workspace_id = new_id(), principal.workspace_id
        before = _existing(
            await store.add_version(connection, version_id, workspace_id, skill_id, bundle, principal.user_id)
        )
        # Raising rolls the new version back.
        call.check_unchanged(before.revision)
        rules.check_takes_versions(before)
        version = before.latest_version + 1
        made = SkillVersionBody(version_id, skill_id, version, bundle.bundle_bytes, bundle.frontmatter, bundle.manifest)
        return Made.plain(made, version_id, before.name, skill_id=str(skill_id), version=version)

    # Two pushes are the same request if their archives have the same bytes.
    archive_sha256 = bundle.manifest.archive_sha256
    return await changes.perform(
        cast("Call[str]", replace(call, read_body=lambda: archive_sha256)),
        operation="push_skill_version",
        lookup=lookup,
        permission=Permission.SKILL_MANAGE,
        resource=(skill_id,),
        about=ObjectType.SKILL_VERSION,
        effect=effect,
    )


async def list_skill_versions(
    access: Access, call: Call[None], skill_id: UUID, request: PageRequest
) -> SkillVersionPage:
    async def show(connection: Connection, _: Principal, __: SkillBody) -> SkillVersionPage:
        async def fetch(start: UUID, count: int) -> list[SkillVersionItem]:
            return await store.versions(connection, skill_id, start, count, newest_first=request.newest_first)

        items, next_cursor = await take_page(request, fetch)
        return SkillVersionPage(items, next_cursor)

    lookup = _visible_skill(call.workspace_id, skill_id)
    return await access.read(call, lookup, Permission.WORKSPACE_READ, show)


async def get_skill_version(access: Access, call: Call[None], skill_id: UUID, version: int) -> StoredVersion:
    (found,) = await _versions(access, call, skill_id, version)
    return found


async def diff_skill_versions(
    access: Access,
    settings: BundleSettings,
    uploads: Uploads,
    files: BundleFiles,
    call: Call[None],
    skill_id: UUID,
    base: int,
    head: int,
) -> SkillDiffBody:
    versions = await _versions(access, call, skill_id, base, head)
    workspace_id = versions[0].workspace_id

    def find_differences() -> tuple[StoredBundle, StoredBundle, Comparison]:
        before, after = (stored_bundle(version) for version in versions)
        return before, after, compare(before.files, after.files, settings)

    async with uploads.comparing(workspace_id):
        before, after, comparison = await uploads.compare(workspace_id, find_differences)
        base_contents = await files.read_files(before, comparison.base_files)
        head_contents = await files.read_files(after, comparison.head_files)
        return await uploads.compare(workspace_id, lambda: comparison.diff(base, head, base_contents, head_contents))


def stored_bundle(version: StoredVersion) -> StoredBundle:
    manifest = msgspec.json.decode(version.body.manifest, type=Manifest)
    return StoredBundle(version.workspace_id, version.archive, manifest.files)


def file_of(bundle: StoredBundle, path: str) -> ManifestFile:
    for file in bundle.files:
        if file.path == path:
            return file
    raise errors.not_found("file")


async def of_session(connection: Connection, session_id: UUID) -> list[UsableVersion]:
    return await store.of_session(connection, session_id)


async def used_versions(
    connection: Connection, workspace_id: UUID, wanted: Sequence[tuple[UUID, int]]
) -> list[UsableVersion]:
    """Those that exist, by skill and number, in any order."""
    return await store.used_versions(connection, workspace_id, wanted)


async def stored_archives(connection: Connection, sha256s: Sequence[str]) -> set[str]:
    """Those of the archives that a version of a skill still has, in any workspace."""
    return await store.stored_archives(connection, sha256s)


async def files_of(connection: Connection, workspace_id: UUID, skill_id: UUID, version: int) -> list[ManifestFile]:
    found = await store.version(connection, workspace_id, skill_id, version)
    return [] if found is None else stored_bundle(found).files


async def check_usable(connection: Connection, workspace_id: UUID, skill_id: UUID, version: int | None) -> None:
    """Raise if a session cannot add the skill. Sessions that already use an archived skill keep it. A usable skill
    cannot be deleted until the transaction ends."""
    found = await store.usable(connection, workspace_id, skill_id)
    if found is None:
        raise errors.invalid("No such skill in this workspace.")
    is_archived, latest_version = found
    rules.check_usable(latest_version, version, is_archived=is_archived)


async def _check_name_free(connection: Connection, workspace_id: UUID, name: str) -> None:
    """For a clear message. Of two concurrent changes the index refuses the second, which then comes here again."""
    if await store.is_name_taken(connection, workspace_id, name):
        raise errors.conflict(rules.NAME_TAKEN)


def _existing(state: SkillState | None) -> SkillState:
    """The skill may have been deleted since the check of visibility."""
    if state is None:
        raise errors.not_found("skill")
    return state


def _visible_skill(named: UUID | None, skill_id: UUID) -> Lookup[SkillBody]:
    async def lookup(connection: Connection, principal: Principal) -> SkillBody:
        if principal.may_see_workspace(named):
            skill = await store.get(connection, principal.workspace_id, skill_id)
            if skill is not None:
                return skill
        raise errors.not_found("skill")

    return lookup


async def _versions(access: Access, call: Call[None], skill_id: UUID, *numbers: int) -> list[StoredVersion]:
    visible_skill = _visible_skill(call.workspace_id, skill_id)

    async def lookup(connection: Connection, principal: Principal) -> list[StoredVersion]:
        await visible_skill(connection, principal)
        found = [await store.version(connection, principal.workspace_id, skill_id, number) for number in numbers]
        seen = [version for version in found if version is not None]
        if len(seen) < len(numbers):
            raise errors.not_found("skill version")
        return seen

    return await access.find(call, lookup, Permission.WORKSPACE_READ)

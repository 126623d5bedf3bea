"""Operations on skills. A push writes the archive before the row: a crash between the two leaves at most an archive
that nothing names, which the sweep removes."""

import asyncio
from collections.abc import AsyncIterator
from typing import IO
from uuid import UUID

from quarterdeck import errors
from quarterdeck.access.call import Call, See, admit, see_workspace
from quarterdeck.access.model import Permission, Principal
from quarterdeck.audit.model import ObjectType
from quarterdeck.db.database import Connection, Database
from quarterdeck.idempotency.service import Answer, Made, perform
from quarterdeck.ids import created_at, new_id
from quarterdeck.parts import Parts
from quarterdeck.settings import BundleSettings
from quarterdeck.skills import archive as archives
from quarterdeck.skills import store
from quarterdeck.skills.bundle_store import BundleStore
from quarterdeck.skills.model import (
    Archive,
    Bundle,
    BundleError,
    CreateSkillBody,
    SkillBody,
    SkillVersionBody,
    UsableVersion,
)

_SWEEP_BATCH = 100


async def create_skill(parts: Parts, call: Call[CreateSkillBody]) -> Answer:
    async def effect(connection: Connection, principal: Principal, workspace_id: UUID, body: CreateSkillBody) -> Made:
        skill_id = new_id()
        await store.add(connection, skill_id, workspace_id, body.name, principal.user_id)
        skill = SkillBody(skill_id, workspace_id, body.name, None, created_at(skill_id))
        return Made.plain(skill, skill_id, name=body.name)

    return await perform(
        parts,
        call,
        operation="create_skill",
        see=see_workspace(call.workspace_id),
        permission=Permission.SKILL_MANAGE,
        resource=(),
        about=ObjectType.SKILL,
        effect=effect,
    )


async def push_skill_version(parts: Parts, call: Call[None], skill_id: UUID, archive: AsyncIterator[bytes]) -> Answer:
    """Checks who asks before reading a byte, and again with the write: the body may have taken a minute."""
    see = _see_skill(call.workspace_id, skill_id)

    async def check(connection: Connection) -> None:
        await admit(connection, parts.last_used, call, see, Permission.SKILL_MANAGE)

    await parts.database.read(check)
    async with parts.uploads.spool() as spool:
        async for chunk in archive:
            spool.write(chunk)
        bundle = await _read(parts, spool)
        await _keep_archive(parts, bundle, spool)

    async def effect(connection: Connection, principal: Principal, _: UUID, pushed: Bundle) -> Made:
        call.check_unchanged(await store.lock(connection, skill_id))
        version = await store.next_version(connection, skill_id)
        version_id = new_id()
        await store.add_version(connection, version_id, skill_id, version, pushed, principal.user_id)
        made = SkillVersionBody(version_id, skill_id, version, pushed.bundle_bytes, pushed.frontmatter, pushed.manifest)
        return Made.plain(made, version_id, skill_id=str(skill_id), version=version)

    return await perform(
        parts,
        call.with_body(bundle),
        operation="push_skill_version",
        see=see,
        permission=Permission.SKILL_MANAGE,
        resource=(skill_id,),
        about=ObjectType.SKILL_VERSION,
        effect=effect,
        compare_by=lambda pushed: pushed.manifest.archive_sha256,
    )


async def of_session(connection: Connection, session_id: UUID) -> list[UsableVersion]:
    return await store.of_session(connection, session_id)


async def check_usable(connection: Connection, workspace_id: UUID, skill_id: UUID, version: int | None) -> None:
    if not await store.is_usable(connection, workspace_id, skill_id, version):
        raise errors.invalid("A skill, or the version of it, does not exist in this workspace.")


async def read_file(
    bundles: BundleStore, archive: Archive, path: str, limits: BundleSettings, max_bytes: int
) -> bytes | None:
    """The first bytes of one file of a stored version; None if it has no such file."""

    def read() -> bytes | None:
        with bundles.open(archive.sha256, archive.generation) as source:
            return archives.read_file(source, path, limits, max_bytes)

    return await asyncio.to_thread(read)


async def sweep_bundles(database: Database, bundles: BundleStore, orphan_hours: int) -> int:
    """Removes archives that no version names and no push has touched for a while. No transaction waits for the store:
    the row goes first, and the archive, which nothing can find any more, after that."""

    async def condemn(connection: Connection) -> int:
        found = await store.old_bundles(connection, orphan_hours, _SWEEP_BATCH)
        condemned = [one for one in found if await store.lock_unused_bundle(connection, one, orphan_hours)]
        for sha256 in condemned:
            await store.condemn_bundle(connection, sha256)
        return len(condemned)

    async def find_condemned(connection: Connection) -> list[tuple[bytes, UUID]]:
        return await store.condemned_bundles(connection, _SWEEP_BATCH)

    while await database.transaction(condemn, repeatable=True):
        pass
    removed = 0
    while condemned := await database.read(find_condemned):
        for sha256, generation in condemned:
            await bundles.delete(sha256.hex(), generation)

            async def forget(connection: Connection, sha256: bytes = sha256, generation: UUID = generation) -> None:
                await store.forget_bundle(connection, sha256, generation)

            await database.transaction(forget, repeatable=True)
        removed += len(condemned)
    return removed


async def _read(parts: Parts, spool: IO[bytes]) -> Bundle:
    try:
        return await parts.uploads.scan(spool)
    except BundleError as fault:
        raise errors.invalid(fault.message) from fault


async def _keep_archive(parts: Parts, bundle: Bundle, spool: IO[bytes]) -> None:
    sha256 = bundle.manifest.archive_sha256

    async def touch(connection: Connection) -> UUID:
        return await store.touch_bundle(connection, bytes.fromhex(sha256), new_id(), bundle.bundle_bytes)

    generation = await parts.database.transaction(touch, repeatable=True)
    await parts.bundles.put(sha256, generation, spool)


def _see_skill(named: UUID | None, skill_id: UUID) -> See[UUID]:
    async def see(connection: Connection, principal: Principal) -> UUID:
        if principal.may_see_workspace(named):
            workspace_id = await store.workspace_of(connection, skill_id)
            if workspace_id == principal.workspace_id:
                return skill_id
        raise errors.not_found("skill")

    return see

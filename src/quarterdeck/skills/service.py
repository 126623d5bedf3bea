"""Operations on skills."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from uuid import UUID

import msgspec
from msgspec import Raw

from quarterdeck import errors
from quarterdeck.access.call import Call, See, see_workspace
from quarterdeck.access.model import CredentialKind, Permission, Principal
from quarterdeck.access.reading import look, read
from quarterdeck.audit.model import ObjectType
from quarterdeck.db.database import Connection, Database
from quarterdeck.idempotency.service import Answer, Made, fingerprint, perform
from quarterdeck.ids import new_id
from quarterdeck.pages import PageRequest, take_page
from quarterdeck.parts import Parts
from quarterdeck.settings import BundleSettings
from quarterdeck.skills import rules, store, stored
from quarterdeck.skills.bundle_store import BundleStore
from quarterdeck.skills.comparing import compare
from quarterdeck.skills.model import (
    Archive,
    BundleError,
    ChangeSkillBody,
    CreateSkillBody,
    Manifest,
    ManifestFile,
    NewVersion,
    Pusher,
    PushVerdict,
    SkillBody,
    SkillDiffBody,
    SkillPage,
    SkillVersionBody,
    SkillVersionItem,
    SkillVersionPage,
    StoredVersion,
    UsableVersion,
)

_SWEEP_BATCH = 100
# What a download holds of its content at a time.
_PIECE_BYTES = 256 * 1024


async def create_skill(parts: Parts, call: Call[CreateSkillBody]) -> Answer:
    async def effect(connection: Connection, principal: Principal, workspace_id: UUID, body: CreateSkillBody) -> Made:
        skill_id = new_id()
        await store.add(connection, skill_id, workspace_id, body.name, principal.user_id)
        skill = await store.get(connection, workspace_id, skill_id)
        assert skill is not None
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


async def list_skills(parts: Parts, call: Call[None], request: PageRequest, *, archived: bool) -> SkillPage:
    async def show(connection: Connection, _: Principal, workspace_id: UUID) -> SkillPage:
        async def fetch(start: UUID, count: int) -> list[SkillBody]:
            first = request.newest_first
            return await store.page(connection, workspace_id, start, count, archived=archived, newest_first=first)

        items, next_cursor = await take_page(request, fetch)
        return SkillPage(items, next_cursor)

    return await read(parts, call, see_workspace(call.workspace_id), Permission.WORKSPACE_READ, show)


async def get_skill(parts: Parts, call: Call[None], skill_id: UUID) -> SkillBody:
    return await look(parts, call, _see_skill(call.workspace_id, skill_id), Permission.WORKSPACE_READ)


async def change_skill(parts: Parts, call: Call[ChangeSkillBody], skill_id: UUID) -> Answer:
    """Asking for what is so already changes nothing: the revision stays, and the audit log says nothing."""

    async def effect(connection: Connection, principal: Principal, _: SkillBody, body: ChangeSkillBody) -> Made:
        # A statement of its own: what follows must see what the holder of this lock committed.
        state = await store.lock(connection, principal.workspace_id, skill_id)
        call.check_unchanged(state.revision)
        changes = rules.changed(state, body)
        new = msgspec.structs.replace(state, **changes)
        rules.check_default_version(new)
        if changes:
            workspace_id, default = principal.workspace_id, new.default_version
            await store.change(connection, workspace_id, skill_id, new.name, default, archived=new.archived)
        skill = await store.get(connection, principal.workspace_id, skill_id)
        assert skill is not None
        return Made(shown=skill, kept=skill, object_id=skill_id, detail=changes, changed=bool(changes))

    return await perform(
        parts,
        call,
        operation="change_skill",
        see=_see_skill(call.workspace_id, skill_id),
        permission=Permission.SKILL_MANAGE,
        resource=(skill_id,),
        about=ObjectType.SKILL,
        effect=effect,
    )


async def push_skill_version(parts: Parts, call: Call[None], skill_id: UUID, archive: AsyncIterator[bytes]) -> Answer:
    """Checks who asks before reading a byte, and again with the version: the body may have taken a minute. The archive
    is written before the version: a crash between the two leaves at most an archive that nothing names, which the sweep
    removes."""
    await _admit_pusher(parts, call, skill_id)
    async with parts.uploads.spool() as spool:
        async for chunk in archive:
            spool.write(chunk)
        try:
            bundle = await parts.uploads.scan(spool)
        except BundleError as fault:
            raise errors.invalid(fault.message) from fault
        sha256 = bundle.manifest.archive_sha256
        generation = await parts.pushes.touch(bytes.fromhex(sha256), bundle.bundle_bytes)
        await parts.bundles.put(sha256, generation, spool)
    key = call.idempotency_key
    new = NewVersion(
        secret_hash=call.credential.secret_hash,
        origin=call.origin,
        if_match=call.if_match,
        idempotency_key=key,
        fingerprint=None if key is None else fingerprint((skill_id,), sha256),
        id=new_id(),
        skill_id=skill_id,
        bundle_sha256=bytes.fromhex(sha256),
        bundle_bytes=bundle.bundle_bytes,
        frontmatter=msgspec.json.encode(bundle.frontmatter).decode(),
        manifest=msgspec.json.encode(bundle.manifest).decode(),
    )
    pushed = await parts.pushes.push(new)
    if pushed.verdict is PushVerdict.UNAUTHORIZED:
        call.allowance.void(call.credential)
    rules.check_pushed(pushed.verdict)
    if pushed.receipt is not None:
        # Our own first try may have been committed and only its answer lost.
        return Answer(pushed.receipt, replayed=str(new.id).encode() not in pushed.receipt)
    assert pushed.version is not None
    frontmatter, manifest = Raw(new.frontmatter.encode()), Raw(new.manifest.encode())
    made = SkillVersionBody(new.id, skill_id, pushed.version, new.bundle_bytes, frontmatter, manifest)
    return Answer(msgspec.json.encode(made))


async def _admit_pusher(parts: Parts, call: Call[None], skill_id: UUID) -> None:
    """All is well, as a rule, and one statement tells. If not, what is wrong is found out in the promised order."""
    if call.fault is None and call.allowance.is_granted and call.credential.kind is CredentialKind.API_KEY:
        pusher = Pusher(call.credential.secret_hash, skill_id, call.workspace_id)
        api_key_id = await parts.pushes.may_push(pusher)
        if api_key_id is not None:
            parts.last_used.note(api_key_id)
            return

    await look(parts, call, _see_skill(call.workspace_id, skill_id), Permission.SKILL_MANAGE)


async def list_skill_versions(parts: Parts, call: Call[None], skill_id: UUID, request: PageRequest) -> SkillVersionPage:
    async def show(connection: Connection, _: Principal, __: SkillBody) -> SkillVersionPage:
        async def fetch(start: UUID, count: int) -> list[SkillVersionItem]:
            return await store.versions(connection, skill_id, start, count, newest_first=request.newest_first)

        items, next_cursor = await take_page(request, fetch)
        return SkillVersionPage(items, next_cursor)

    see = _see_skill(call.workspace_id, skill_id)
    return await read(parts, call, see, Permission.WORKSPACE_READ, show)


async def get_skill_version(parts: Parts, call: Call[None], skill_id: UUID, version: int) -> StoredVersion:
    (found,) = await _versions(parts, call, skill_id, version)
    return found


async def diff_skill_versions(parts: Parts, call: Call[None], skill_id: UUID, base: int, head: int) -> SkillDiffBody:
    before, after = await _versions(parts, call, skill_id, base, head)
    return await parts.uploads.compare(lambda: compare(parts.bundles, before, after, parts.settings.bundle))


def file_of(version: StoredVersion, path: str) -> ManifestFile:
    manifest = msgspec.json.decode(version.body.manifest, type=Manifest)
    for file in manifest.files:
        if file.path == path:
            return file
    raise errors.not_found("file")


async def bundle_pieces(parts: Parts, version: StoredVersion, start: int, end: int) -> AsyncGenerator[bytes, None]:
    """The archive as it was pushed, from one byte up to another."""
    sha256, generation = version.archive.sha256, version.archive.generation
    for at in range(start, end, _PIECE_BYTES):
        try:
            piece = await parts.bundles.read(sha256, generation, at, min(at + _PIECE_BYTES, end))
        except FileNotFoundError as fault:
            raise errors.internal() from fault
        yield piece


async def file_pieces(
    parts: Parts, version: StoredVersion, file: ManifestFile, start: int, end: int
) -> AsyncGenerator[bytes, None]:
    """One file of the archive, from one byte up to another. Unpacked and checked before the first byte is given."""
    async with parts.uploads.unpacking() as spool:
        takers = {file: spool.write}
        await parts.uploads.read(
            lambda: stored.take_files(parts.bundles, version.archive, takers, parts.settings.bundle)
        )
        spool.seek(start)
        for at in range(start, end, _PIECE_BYTES):
            yield spool.read(min(_PIECE_BYTES, end - at))


async def of_session(connection: Connection, session_id: UUID) -> list[UsableVersion]:
    return await store.of_session(connection, session_id)


async def check_usable(connection: Connection, workspace_id: UUID, skill_id: UUID, version: int | None) -> None:
    """Whether a session may take it up. Those that have it keep it, archived or not."""
    found = await store.usable(connection, workspace_id, skill_id, version)
    if found is None or not found[1]:
        raise errors.invalid("A skill, or the version of it, does not exist in this workspace.")
    if found[0]:
        raise errors.invalid("A skill is archived: no further session can use it.")


async def read_file(
    bundles: BundleStore, archive: Archive, path: str, limits: BundleSettings, max_bytes: int
) -> bytes | None:
    """The first bytes of one file of a stored version; None if it has no such file."""
    return await asyncio.to_thread(stored.read_file, bundles, archive, path, limits, max_bytes)


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


def _see_skill(named: UUID | None, skill_id: UUID) -> See[SkillBody]:
    async def see(connection: Connection, principal: Principal) -> SkillBody:
        if principal.may_see_workspace(named):
            skill = await store.get(connection, principal.workspace_id, skill_id)
            if skill is not None:
                return skill
        raise errors.not_found("skill")

    return see


async def _versions(parts: Parts, call: Call[None], skill_id: UUID, *numbers: int) -> list[StoredVersion]:
    see_skill = _see_skill(call.workspace_id, skill_id)

    async def see(connection: Connection, principal: Principal) -> list[StoredVersion]:
        await see_skill(connection, principal)
        found = [await store.version(connection, principal.workspace_id, skill_id, number) for number in numbers]
        seen = [version for version in found if version is not None]
        if len(seen) < len(numbers):
            raise errors.not_found("skill version")
        return seen

    return await look(parts, call, see, Permission.WORKSPACE_READ)

"""A push: who asks, the archive, its place in the store, its version. The archive is written before the version: a
crash between the two leaves at most an archive that nothing names, which the sweep removes."""

from collections.abc import AsyncIterator
from typing import IO
from uuid import UUID

import msgspec
from msgspec import Raw

from quarterdeck import errors
from quarterdeck.access.call import Call, admit
from quarterdeck.access.model import CredentialKind, Permission
from quarterdeck.db.database import Connection
from quarterdeck.idempotency.service import Answer, fingerprint
from quarterdeck.ids import new_id
from quarterdeck.parts import Parts
from quarterdeck.skills import store
from quarterdeck.skills.model import Bundle, BundleError, NewVersion, Pushed, PushVerdict, SkillVersionBody
from quarterdeck.skills.service import see_skill

_REFUSALS = {
    PushVerdict.UNAUTHORIZED: errors.unauthorized,
    PushVerdict.FORBIDDEN: lambda: errors.forbidden(Permission.SKILL_MANAGE),
    PushVerdict.NOT_FOUND: lambda: errors.not_found("skill"),
    PushVerdict.CONFLICT: errors.key_reused,
    PushVerdict.CHANGED: errors.precondition_failed,
    PushVerdict.ARCHIVED: lambda: errors.conflict(
        "This skill is archived and takes no further versions. Bring it back first."
    ),
}


async def push_skill_version(parts: Parts, call: Call[None], skill_id: UUID, archive: AsyncIterator[bytes]) -> Answer:
    """Checks who asks before reading a byte, and again with the write: the body may have taken a minute."""
    await _admit(parts, call, skill_id)
    async with parts.uploads.spool() as spool:
        async for chunk in archive:
            spool.write(chunk)
        bundle = await _read(parts, spool)
        await _keep_archive(parts, bundle, spool)
    new = _new_version(call, skill_id, bundle)

    async def push(connection: Connection) -> Pushed:
        return await store.push(connection, new)

    pushed = await parts.database.statement(push, repeatable=new.idempotency_key is not None)
    if pushed.receipt is not None:
        # Our own first try may have been committed and only its answer lost.
        return Answer(pushed.receipt, replayed=msgspec.json.decode(pushed.receipt, type=_Identified).id != new.id)
    if pushed.version is None:
        if pushed.verdict is PushVerdict.UNAUTHORIZED:
            call.allowance.void(call.credential)
        raise _REFUSALS[pushed.verdict]()
    frontmatter, manifest = Raw(new.frontmatter.encode()), Raw(new.manifest.encode())
    body = SkillVersionBody(new.id, skill_id, pushed.version, new.bundle_bytes, frontmatter, manifest)
    return Answer(msgspec.json.encode(body))


class _Identified(msgspec.Struct, frozen=True):
    id: UUID


async def _admit(parts: Parts, call: Call[None], skill_id: UUID) -> None:
    """All is well, as a rule, and one statement tells. If not, what is wrong is found out in the promised order."""
    if call.fault is None and call.allowance.is_granted and call.credential.kind is CredentialKind.API_KEY:

        async def look(connection: Connection) -> UUID | None:
            return await store.may_push(connection, call.credential.secret_hash, skill_id, call.workspace_id)

        api_key_id = await parts.database.read(look)
        if api_key_id is not None:
            parts.last_used.note(api_key_id)
            return

    async def check(connection: Connection) -> None:
        see = see_skill(call.workspace_id, skill_id)
        await admit(connection, parts.last_used, call, see, Permission.SKILL_MANAGE)

    await parts.database.read(check)


async def _read(parts: Parts, spool: IO[bytes]) -> Bundle:
    try:
        return await parts.uploads.scan(spool)
    except BundleError as fault:
        raise errors.invalid(fault.message) from fault


async def _keep_archive(parts: Parts, bundle: Bundle, spool: IO[bytes]) -> None:
    sha256 = bundle.manifest.archive_sha256

    async def touch(connection: Connection) -> UUID:
        return await store.touch_bundle(connection, bytes.fromhex(sha256), new_id(), bundle.bundle_bytes)

    generation = await parts.database.statement(touch, repeatable=True)
    await parts.bundles.put(sha256, generation, spool)


def _new_version(call: Call[None], skill_id: UUID, bundle: Bundle) -> NewVersion:
    sha256, key = bundle.manifest.archive_sha256, call.idempotency_key
    return NewVersion(
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

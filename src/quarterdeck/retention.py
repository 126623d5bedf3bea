"""Retention: deletes expired receipts, audit entries, unreferenced archives, logs of deleted sessions and old webhook
deliveries."""

from collections.abc import Awaitable

from msgspec import Struct

from quarterdeck.audit.service import sweep_audit_events
from quarterdeck.blobs.blob_store import BlobStore
from quarterdeck.blobs.sweep import sweep_blobs
from quarterdeck.changes.perform import sweep_receipts
from quarterdeck.conversations.sessions.service import purge_deleted_sessions
from quarterdeck.core.settings import Settings
from quarterdeck.db.database import Database
from quarterdeck.skills.sweep import sweep_blocks
from quarterdeck.webhooks.service import sweep_deliveries


class Deleted(Struct, frozen=True):
    receipts: int
    audit_events: int
    bundles: int
    sessions: int
    deliveries: int


async def delete_expired(database: Database, bundles: BlobStore, settings: Settings) -> Deleted:
    """Safe to run in several processes at once: each takes rows that no other has locked. All five are attempted even
    if one fails; the first error is raised at the end."""
    receipt = settings.receipt
    results = [
        await _outcome(deletion)
        for deletion in (
            sweep_receipts(database, receipt.keep_days, receipt.sweep_batch),
            sweep_audit_events(database),
            _sweep_contents(database, bundles, settings.bundle.orphan_hours),
            purge_deleted_sessions(database),
            sweep_deliveries(database, settings.webhook.keep_days, receipt.sweep_batch),
        )
    ]
    counts: list[int] = []
    for result in results:
        if isinstance(result, Exception):
            raise result
        counts.append(result)
    return Deleted(*counts)


async def _outcome(deletion: Awaitable[int]) -> int | Exception:
    try:
        return await deletion
    except Exception as fault:
        return fault


async def _sweep_contents(database: Database, blobs: BlobStore, orphan_hours: int) -> int:
    """Blocks last: those of deleted bundles go in the same run."""
    removed = await sweep_blobs(database, blobs, orphan_hours)
    await sweep_blocks(database, blobs, orphan_hours)
    return removed

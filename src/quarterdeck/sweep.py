"""What is thrown away after its time: receipts that nobody can ask for, archives that nothing names, logs of
deleted sessions."""

from msgspec import Struct

from quarterdeck.idempotency.service import sweep_receipts
from quarterdeck.parts import Parts
from quarterdeck.sessions.service import purge_deleted_sessions
from quarterdeck.skills.service import sweep_bundles


class Swept(Struct, frozen=True):
    receipts: int
    bundles: int
    sessions: int


async def sweep(parts: Parts) -> Swept:
    """Safe to run in several processes at once: each takes what no other has locked."""
    receipt, bundle = parts.settings.receipt, parts.settings.bundle
    return Swept(
        receipts=await sweep_receipts(parts.database, receipt.keep_days, receipt.sweep_batch),
        bundles=await sweep_bundles(parts.database, parts.bundles, bundle.orphan_hours),
        sessions=await purge_deleted_sessions(parts.database),
    )

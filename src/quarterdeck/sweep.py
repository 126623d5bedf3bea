"""What is thrown away after its time: receipts that nobody can ask for, the oldest of the audit log, archives that
nothing names, logs of deleted sessions."""

from msgspec import Struct

from quarterdeck.audit.service import sweep_audit_events
from quarterdeck.idempotency.service import sweep_receipts
from quarterdeck.parts import Parts
from quarterdeck.sessions.service import purge_deleted_sessions
from quarterdeck.skills.service import sweep_bundles


class Swept(Struct, frozen=True):
    receipts: int
    audit_events: int
    bundles: int
    sessions: int


async def sweep(parts: Parts) -> Swept:
    """Safe to run in several processes at once: each takes what no other has locked."""
    receipt, bundle = parts.settings.receipt, parts.settings.bundle
    return Swept(
        receipts=await sweep_receipts(parts.database, receipt.keep_days, receipt.sweep_batch),
        audit_events=await sweep_audit_events(parts.database, parts.settings.audit.keep_days),
        bundles=await sweep_bundles(parts.database, parts.bundles, bundle.orphan_hours),
        sessions=await purge_deleted_sessions(parts.database),
    )

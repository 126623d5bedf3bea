"""What is thrown away after its time: receipts that nobody can ask for, the oldest of the audit log, archives that
nothing names, logs of deleted sessions, what webhooks were told long ago."""

from collections.abc import Awaitable

from msgspec import Struct

from quarterdeck.audit.service import sweep_audit_events
from quarterdeck.idempotency.service import sweep_receipts
from quarterdeck.parts import Parts
from quarterdeck.sessions.service import purge_deleted_sessions
from quarterdeck.skills.service import sweep_bundles
from quarterdeck.webhooks.service import sweep_deliveries


class Swept(Struct, frozen=True):
    receipts: int
    audit_events: int
    bundles: int
    sessions: int
    deliveries: int


async def sweep(parts: Parts) -> Swept:
    """Safe to run in several processes at once: each takes what no other has locked. What fails keeps nobody else from
    being swept."""
    receipt, bundle, webhook = parts.settings.receipt, parts.settings.bundle, parts.settings.webhook
    results = [
        await _outcome(sweeping)
        for sweeping in (
            sweep_receipts(parts.database, receipt.keep_days, receipt.sweep_batch),
            sweep_audit_events(parts.database),
            sweep_bundles(parts.database, parts.bundles, bundle.orphan_hours),
            purge_deleted_sessions(parts.database),
            sweep_deliveries(parts.database, webhook.keep_days, receipt.sweep_batch),
        )
    ]
    counts: list[int] = []
    for result in results:
        if isinstance(result, Exception):
            raise result
        counts.append(result)
    return Swept(*counts)


async def _outcome(sweeping: Awaitable[int]) -> int | Exception:
    try:
        return await sweeping
    except Exception as fault:
        return fault

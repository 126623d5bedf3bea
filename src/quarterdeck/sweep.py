"""What is thrown away after its time: receipts that nobody can ask for, archives that nothing names,
what webhooks were told long ago."""

from msgspec import Struct

from quarterdeck.idempotency.service import sweep_receipts
from quarterdeck.parts import Parts
from quarterdeck.skills.service import sweep_bundles
from quarterdeck.webhooks.service import sweep_deliveries


class Swept(Struct, frozen=True):
    receipts: int
    bundles: int
    deliveries: int


async def sweep(parts: Parts) -> Swept:
    """Safe to run in several processes at once: each takes what no other has locked."""
    receipt, bundle, webhook = parts.settings.receipt, parts.settings.bundle, parts.settings.webhook
    return Swept(
        receipts=await sweep_receipts(parts.database, receipt.keep_days, receipt.sweep_batch),
        bundles=await sweep_bundles(parts.database, parts.bundles, bundle.orphan_hours),
        deliveries=await sweep_deliveries(parts.database, webhook.keep_days, receipt.sweep_batch),
    )

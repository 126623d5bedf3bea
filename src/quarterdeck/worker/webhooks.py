"""What a worker does beside its runs: it sends what webhooks are to hear."""

from quarterdeck.webhooks.deliveries import Deliveries
from quarterdeck.webhooks.sealing import Sealer
from quarterdeck.webhooks.sender import Sender
from quarterdeck.worker.parts import WorkerParts


async def keep_delivering(parts: WorkerParts) -> None:
    settings = parts.settings
    sender = Sender(settings.webhook)
    try:
        sealer = Sealer(settings.webhook, settings.data_dir)
        await Deliveries(parts.database, settings.webhook, sealer, sender).keep_sending()
    finally:
        sender.close()

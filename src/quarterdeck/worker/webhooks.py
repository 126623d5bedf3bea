"""Sends webhook deliveries in a worker process."""

from quarterdeck.webhooks.deliveries import DeliverySender
from quarterdeck.webhooks.secret_encryption import SecretCipher
from quarterdeck.webhooks.sender import Sender
from quarterdeck.worker.parts import WorkerParts


async def keep_delivering(parts: WorkerParts) -> None:
    settings = parts.settings
    sender = Sender(settings.webhook)
    try:
        cipher = SecretCipher(settings.webhook, settings.data_dir)
        await DeliverySender(parts.database, settings.webhook, cipher, sender).run()
    finally:
        sender.close()

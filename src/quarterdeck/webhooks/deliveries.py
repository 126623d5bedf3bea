"""Sends due deliveries; runs in every worker. One transaction claims an attempt, another stores its outcome, and none
is open while the receiver is called. The attempts of a killed worker become due again when their lease ends.
"""

import asyncio
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from secrets import SystemRandom

from quarterdeck.core.logging import fields, log
from quarterdeck.core.secret_encryption import EncryptionKeyError, SecretCipher
from quarterdeck.core.settings import WebhookSettings
from quarterdeck.core.text_types import storable
from quarterdeck.db.database import Connection, Database
from quarterdeck.outbound.http_client import OutboundError, UnreachableError
from quarterdeck.webhooks import rules, signatures, store
from quarterdeck.webhooks.model import Claimed, DeliveryOutcome, Receiver
from quarterdeck.webhooks.sender import Answered, Sender

_DISABLED = "The webhook was disabled."
_GONE = "The receiver responded with 410 Gone."
_UNREADABLE = "The signing secret cannot be decrypted. The server's log has the reason."
_HONOURS_RETRY_AFTER = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
# The lease of an attempt, in multiples of the attempt's timeout. A worker that takes longer is considered dead.
_LEASE_TIMEOUTS = 3
_random = SystemRandom()


class DeliverySender:
    def __init__(self, database: Database, settings: WebhookSettings, cipher: SecretCipher, sender: Sender) -> None:
        self._database = database
        self._settings = settings
        self._cipher = cipher
        self._sender = sender
        self._running: set[asyncio.Task[None]] = set()
        # Running attempts by host.
        self._busy: Counter[str] = Counter()

    async def run(self) -> None:
        try:
            while True:
                try:
                    while await self._begin():
                        pass
                except Exception as fault:
                    log.warning("webhook deliveries could not be claimed and will be tried again", exc_info=fault)
                await self._pause()
        finally:
            for task in self._running:
                task.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)

    async def _pause(self) -> None:
        """Wait for the next poll, or until an attempt ends and frees its slot."""
        seconds = self._settings.poll_seconds
        if self._running:
            await asyncio.wait(self._running, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.sleep(seconds)

    async def _begin(self) -> bool:
        """Start the claimed attempts. True if deliveries were dropped, so that slots are still free."""
        claims, dropped = await self._claim()
        for claimed, receiver in claims:
            self._busy[receiver.host] += 1
            task = asyncio.create_task(self._deliver(claimed, receiver))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        return dropped > 0

    async def _claim(self) -> tuple[list[tuple[Claimed, Receiver]], int]:
        """The attempts to make, and the number of deliveries that were dropped."""
        slots = self._settings.concurrency - len(self._running)
        # Unary plus removes hosts whose count is zero.
        self._busy = busy = +self._busy
        lease_seconds = self._settings.timeout_seconds * _LEASE_TIMEOUTS

        async def work(connection: Connection) -> tuple[list[tuple[Claimed, Receiver]], int]:
            claims = await store.claim(connection, slots, busy, self._settings.per_host, lease_seconds)
            if not claims:
                return [], 0
            receivers = await store.receivers(connection, [one.webhook_id for one in claims])
            orphans = [one.id for one in claims if one.webhook_id not in receivers]
            if orphans:
                # Their webhook was deleted.
                await store.forget(connection, orphans)
            found = [(one, receivers[one.webhook_id]) for one in claims if one.webhook_id in receivers]
            # Done here and not when the webhook is disabled: one transaction could not update a large backlog.
            unwanted = [one.id for one, receiver in found if not receiver.enabled]
            if unwanted:
                await store.give_up(connection, unwanted, _DISABLED)
            return [pair for pair in found if pair[1].enabled], len(orphans) + len(unwanted)

        return await self._database.transaction(work, repeatable=False)

    async def _deliver(self, claimed: Claimed, receiver: Receiver) -> None:
        try:
            outcome = await self._attempt(claimed, receiver)
            await self._store(claimed, receiver, outcome)
        except Exception as fault:
            # Nothing was stored, so the delivery is due again when its lease ends.
            log.warning("the outcome of a webhook delivery could not be stored", exc_info=fault)
        finally:
            self._busy[receiver.host] -= 1

    async def _attempt(self, claimed: Claimed, receiver: Receiver) -> DeliveryOutcome:
        began = time.monotonic()
        answered: Answered | None = None
        detail = None
        is_timed = True
        try:
            answered = await self._send(claimed, receiver)
            error = None if _is_success(answered.status) else f"The receiver responded with {answered.status}."
        except OutboundError as fault:
            error, detail = storable(str(fault)), fault.detail
            # How long the lookup of a name took would tell users whether the name exists.
            is_timed = not isinstance(fault, UnreachableError)
        duration_ms = round((time.monotonic() - began) * 1000) if is_timed else None
        status = None if answered is None else answered.status
        if error is None:
            return DeliveryOutcome(duration_ms=duration_ms, status=status)
        gone = status == HTTPStatus.GONE
        log.warning(
            "a webhook delivery failed",
            extra=fields(
                webhook_id=claimed.webhook_id,
                delivery_id=claimed.id,
                # Only the host: path and query may contain a secret of the receiver.
                host=receiver.host,
                attempt=claimed.attempt,
                error=detail or error,
            ),
        )
        return DeliveryOutcome(
            duration_ms=duration_ms,
            status=status,
            error=error,
            pause=None if gone else self._pause_after(claimed, answered),
            disable=_GONE if gone else None,
        )

    async def _send(self, claimed: Claimed, receiver: Receiver) -> Answered:
        try:
            keys = [self._cipher.decrypt(receiver.id, encrypted) for encrypted in receiver.secrets]
        except EncryptionKeyError as fault:
            log.error("the secret of a webhook cannot be read", extra=fields(webhook_id=receiver.id, error=str(fault)))
            raise OutboundError(_UNREADABLE) from fault
        headers = signatures.headers(claimed.id, int(time.time()), claimed.payload, keys)
        return await self._sender.post(receiver.workspace_id, receiver.url, headers, claimed.payload)

    def _pause_after(self, claimed: Claimed, answered: Answered | None) -> timedelta | None:
        asked = answered.retry_after if answered is not None and answered.status in _HONOURS_RETRY_AFTER else None
        return rules.pause_after(claimed.turn, self._settings, datetime.now(UTC), _random.random(), asked)

    async def _store(self, claimed: Claimed, receiver: Receiver, outcome: DeliveryOutcome) -> None:
        days = self._settings.disable_after_days

        async def work(connection: Connection) -> None:
            await store.store_outcome(connection, claimed, outcome)
            if outcome.error is None:
                await store.note_success(connection, receiver.id)
                return
            await store.note_failure(connection, receiver.id)
            if outcome.disable is not None:
                await store.disable(connection, receiver, outcome.disable)
            else:
                await store.disable_failing(connection, receiver, f"No delivery has succeeded for {days} days.", days)

        await self._database.transaction(work, repeatable=True)


def _is_success(status: int) -> bool:
    return 200 <= status < 300

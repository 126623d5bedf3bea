"""Operations on webhooks and their deliveries."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, TypeVar
from urllib.parse import urlsplit
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, Struct

from quarterdeck.auth.access import Access, visible_record, visible_workspace
from quarterdeck.changes.model import ObjectType
from quarterdeck.changes.perform import Changes, Made
from quarterdeck.core import errors
from quarterdeck.core.actors import Permission, Principal
from quarterdeck.core.call import Answer, Call
from quarterdeck.core.ids import LOWEST_ID, new_id
from quarterdeck.core.operation import ErrorCase, Query, operation
from quarterdeck.core.pages import PageRequest
from quarterdeck.core.secret_encryption import EncryptionKeyError, SecretCipher
from quarterdeck.core.settings import WebhookSettings
from quarterdeck.db.database import Connection, Database
from quarterdeck.db.walks import walk
from quarterdeck.outbound.rules import read_url
from quarterdeck.webhooks import rules, signatures, store
from quarterdeck.webhooks.model import (
    TEST_EVENT,
    ChangeWebhookBody,
    CreatedWebhookBody,
    CreateWebhookBody,
    DeliveryState,
    NewDelivery,
    NewWebhook,
    RotateWebhookSecretBody,
    TestData,
    WebhookBody,
    WebhookDeliveryBody,
    WebhookDeliveryPage,
    WebhookEvent,
    WebhookMessage,
    WebhookPage,
)

subscribers = store.subscribers

Body = TypeVar("Body")


class DeliveryQuery(Query, frozen=True):
    state: Annotated[DeliveryState | None, Meta(description="Only deliveries in this state.")] = None


_DISABLED = ErrorCase(
    "disabled",
    errors.conflict("The webhook is disabled. Enable it first."),
    "The webhook is disabled: manually, or because its receiver is gone or failed for days.",
    "Enable the webhook, then try again.",
)


@operation(
    summary="List the webhooks of a workspace",
    description="One page per call, newest first unless order=asc.",
    permission=Permission.WORKSPACE_READ,
    success="One page. next_cursor is null on the last page.",
    cursor_must_exist=False,
)
async def list_webhooks(access: Access, call: Call[None], request: PageRequest) -> WebhookPage:
    return await access.page(call, visible_workspace(call), WebhookPage, request, store.page)


@operation(
    summary="Get a webhook",
    permission=Permission.WORKSPACE_READ,
    success="The webhook.",
    etag=True,
)
async def get_webhook(access: Access, call: Call[None], webhook_id: UUID) -> WebhookBody:
    return await access.find(call, visible_record(call, "webhook", store.get, webhook_id))


@operation(
    summary="Create a webhook",
    description=(
        "Sends an event to the URL for every run that ends from now on, signed according to Standard Webhooks. Each "
        "event is delivered at least once; the order is not guaranteed."
    ),
    permission=Permission.KEY_MANAGE,
    created=True,
    success="The new webhook, with its signing secret, which is shown only once.",
    idempotent=True,
    etag=True,
    refusals=(
        ErrorCase(
            "too_many",
            errors.conflict("This workspace already has the maximum of 20 webhooks. Delete one first."),
            "The workspace has the maximum number of webhooks (default: 20).",
            "Delete a webhook that you no longer need.",
        ),
    ),
)
async def create_webhook(
    changes: Changes, settings: WebhookSettings, cipher: SecretCipher, call: Call[CreateWebhookBody]
) -> Answer[CreatedWebhookBody]:
    async def effect(connection: Connection, principal: Principal, workspace_id: UUID, body: CreateWebhookBody) -> Made:
        target = read_url(body.url, rules.address_policy(settings))
        await store.lock_workspace(connection, workspace_id)
        if await store.count(connection, workspace_id) >= settings.per_workspace:
            raise errors.conflict(
                f"This workspace already has the maximum of {settings.per_workspace} webhooks. Delete one first."
            )
        webhook_id, secret = new_id(), signatures.new_secret()
        webhook = NewWebhook(
            id=webhook_id,
            workspace_id=workspace_id,
            url=body.url,
            host=target.host,
            events=rules.ordered(body.events),
            description=body.description,
            secret=_encrypt(cipher, webhook_id, secret),
            created_by=principal.user_id,
        )
        await store.add(connection, webhook)
        return _made_with_secret(await _stored(connection, workspace_id, webhook_id), secret)

    return await changes.perform(call, visible_workspace(call), ObjectType.WEBHOOK, effect)


@operation(
    summary="Change a webhook",
    description=(
        "Changes only the given fields. Pending deliveries go to the new URL. Deliveries that become due while the "
        "webhook is disabled fail."
    ),
    permission=Permission.KEY_MANAGE,
    reads=True,
    success="The changed webhook.",
    idempotent=True,
    etag=True,
    conditional=True,
)
async def change_webhook(
    changes: Changes, settings: WebhookSettings, call: Call[ChangeWebhookBody], webhook_id: UUID
) -> Answer[WebhookBody]:
    async def effect(connection: Connection, principal: Principal, _: WebhookBody, body: ChangeWebhookBody) -> Made:
        found = await _locked(connection, call, principal, webhook_id)
        given = {name: value for name, value in msgspec.structs.asdict(body).items() if value is not UNSET}
        if "events" in given:
            given["events"] = rules.ordered(given["events"])
        wanted = msgspec.structs.replace(found, **given)
        if wanted.enabled:
            wanted = msgspec.structs.replace(wanted, disabled_reason=None)
        if wanted == found:
            return Made(shown=found, kept=found, object_id=webhook_id, changed=False)
        # An unchanged URL is not checked again: a webhook can be disabled even if the settings now refuse its URL.
        moved = wanted.url != found.url
        host = read_url(wanted.url, rules.address_policy(settings)).host if moved else None
        await store.change(connection, principal.workspace_id, wanted, host)
        changed = await _stored(connection, principal.workspace_id, webhook_id)
        moved_to = {"host": host} if moved else {}
        return Made.plain(changed, webhook_id, _name(changed), changed=sorted(given), **moved_to)

    return await changes.perform(
        call, visible_record(call, "webhook", store.get, webhook_id), ObjectType.WEBHOOK, effect
    )


@operation(
    summary="Delete a webhook",
    description="Also deletes its deliveries. A delivery that is being sent may still arrive.",
    permission=Permission.KEY_MANAGE,
    success="The webhook is deleted.",
    conditional=True,
)
async def delete_webhook(changes: Changes, call: Call[None], webhook_id: UUID) -> Answer[None]:
    async def effect(connection: Connection, principal: Principal, _: WebhookBody, __: None) -> Made:
        found = await _locked(connection, call, principal, webhook_id)
        await store.delete(connection, principal.workspace_id, webhook_id)
        detail = {"description": found.description}
        return Made(shown=None, kept=None, object_id=webhook_id, object_name=_name(found), detail=detail)

    return await changes.perform(
        call, visible_record(call, "webhook", store.get, webhook_id), ObjectType.WEBHOOK, effect
    )


@operation(
    summary="Rotate the signing secret of a webhook",
    description=(
        "During the overlap, deliveries are signed with both secrets, so that the receiver can switch at any time. An "
        "even older secret ends now."
    ),
    permission=Permission.KEY_MANAGE,
    reads=True,
    success="The webhook with its new secret, which is shown only once.",
    idempotent=True,
    etag=True,
    conditional=True,
)
async def rotate_webhook_secret(
    changes: Changes, cipher: SecretCipher, call: Call[RotateWebhookSecretBody], webhook_id: UUID
) -> Answer[CreatedWebhookBody]:
    """At most two secrets are valid: one that was still in its overlap ends now."""

    async def effect(
        connection: Connection, principal: Principal, _: WebhookBody, body: RotateWebhookSecretBody
    ) -> Made:
        await _locked(connection, call, principal, webhook_id)
        secret = signatures.new_secret()
        workspace_id, encrypted = principal.workspace_id, _encrypt(cipher, webhook_id, secret)
        await store.rotate(connection, workspace_id, webhook_id, encrypted, body.overlap_seconds)
        rotated = await _stored(connection, workspace_id, webhook_id)
        return _made_with_secret(rotated, secret, overlap_seconds=body.overlap_seconds)

    return await changes.perform(
        call, visible_record(call, "webhook", store.get, webhook_id), ObjectType.WEBHOOK, effect
    )


@operation(
    summary="Send a test event to a webhook",
    description="Sends an event of type webhook.test like any other event.",
    permission=Permission.KEY_MANAGE,
    created=True,
    success="The delivery. A worker sends it within about a second.",
    idempotent=True,
    refusals=(_DISABLED,),
)
async def test_webhook(changes: Changes, call: Call[None], webhook_id: UUID) -> Answer[WebhookDeliveryBody]:
    async def effect(connection: Connection, principal: Principal, webhook: WebhookBody, _: None) -> Made:
        _check_enabled(webhook)
        workspace_id = principal.workspace_id
        delivery_id = new_id()
        payload = _encoded(TEST_EVENT, TestData(webhook_id, workspace_id))
        await store.add_deliveries(connection, [NewDelivery(delivery_id, webhook_id, TEST_EVENT, None, payload)])
        delivery = await _delivery(connection, workspace_id, webhook_id, delivery_id)
        return Made.plain(delivery, webhook_id, _name(webhook))

    return await changes.perform(
        call, visible_record(call, "webhook", store.get, webhook_id), ObjectType.WEBHOOK, effect
    )


@operation(
    summary="List the deliveries of a webhook",
    description="One page per call, newest first unless order=asc. Ended deliveries are kept for 30 days by default.",
    permission=Permission.WORKSPACE_READ,
    success="One page. next_cursor is null on the last page.",
    cursor_must_exist=False,
)
async def list_webhook_deliveries(
    access: Access, call: Call[None], webhook_id: UUID, request: PageRequest, query: DeliveryQuery
) -> WebhookDeliveryPage:
    lookup = visible_record(call, "webhook", store.get, webhook_id)
    deliveries = store.page_of_deliveries
    return await access.page(call, lookup, WebhookDeliveryPage, request, deliveries, state=query.state)


@operation(
    summary="Send a delivery again",
    description="Sends the same payload with the same webhook-id again, immediately, and with all retries if it fails.",
    permission=Permission.KEY_MANAGE,
    reads=True,
    success="The pending delivery.",
    idempotent=True,
    refusals=(_DISABLED,),
)
async def redeliver_webhook(
    changes: Changes, call: Call[None], webhook_id: UUID, delivery_id: UUID
) -> Answer[WebhookDeliveryBody]:
    async def effect(connection: Connection, principal: Principal, _: WebhookDeliveryBody, __: None) -> Made:
        workspace_id = principal.workspace_id
        webhook = await _stored(connection, workspace_id, webhook_id)
        _check_enabled(webhook)
        await store.send_again(connection, webhook_id, delivery_id)
        shown = await _delivery(connection, workspace_id, webhook_id, delivery_id)
        return Made.plain(shown, webhook_id, _name(webhook), delivery_id=str(delivery_id))

    lookup = visible_record(call, "delivery", store.get_delivery, webhook_id, delivery_id)
    return await changes.perform(call, lookup, ObjectType.WEBHOOK, effect)


async def add_deliveries(
    connection: Connection, webhook_ids: Sequence[UUID], event: WebhookEvent, run_id: UUID, data: Struct
) -> None:
    """In the transaction that causes the event: each event has its deliveries, and a rolled back event has none.
    Workers send them later (`deliveries.py`)."""
    payload = _encoded(event, data)
    deliveries = [NewDelivery(new_id(), webhook_id, event, run_id, payload) for webhook_id in webhook_ids]
    await store.add_deliveries(connection, deliveries)


def _encoded(event: str, data: Struct) -> bytes:
    return msgspec.json.encode(WebhookMessage(event, datetime.now(UTC), data))


async def reencrypt_webhooks(connection: Connection, cipher: SecretCipher) -> int:
    """Encrypt every secret with the first key, unless it already is."""
    reencrypted = 0
    try:
        for webhook_id, secret, previous in await store.encrypted_secrets(connection):
            if all(cipher.is_current(one) for one in (secret, previous) if one is not None):
                continue
            fresh = cipher.encrypt(webhook_id, cipher.decrypt(webhook_id, secret))
            before = None if previous is None else cipher.encrypt(webhook_id, cipher.decrypt(webhook_id, previous))
            await store.set_secrets(connection, webhook_id, fresh, before)
            reencrypted += 1
    except EncryptionKeyError as fault:
        raise errors.conflict(f"A webhook secret cannot be decrypted: {fault}.") from fault
    return reencrypted


async def sweep_deliveries(database: Database, days: int, shortest_days: int, batch: int) -> int:
    """`days`: the retention of the server. `shortest_days`: of all workspaces."""
    delete = partial(store.delete_old, days=days, shortest_days=shortest_days, batch=batch)
    return await walk(database, delete, LOWEST_ID, batch)


async def _stored(connection: Connection, workspace_id: UUID, webhook_id: UUID) -> WebhookBody:
    return errors.existing(await store.get(connection, workspace_id, webhook_id), "webhook")


async def _locked(connection: Connection, call: Call[Body], principal: Principal, webhook_id: UUID) -> WebhookBody:
    """Lock and read the webhook. It may have been deleted since the check of visibility."""
    await store.lock(connection, principal.workspace_id, webhook_id)
    webhook = await _stored(connection, principal.workspace_id, webhook_id)
    call.check_unchanged(webhook.revision)
    return webhook


async def _delivery(
    connection: Connection, workspace_id: UUID, webhook_id: UUID, delivery_id: UUID
) -> WebhookDeliveryBody:
    return errors.existing(await store.get_delivery(connection, workspace_id, webhook_id, delivery_id), "delivery")


def _made_with_secret(webhook: WebhookBody, secret: bytes, **detail: object) -> Made:
    kept = CreatedWebhookBody(**msgspec.structs.asdict(webhook))
    shown = msgspec.structs.replace(kept, secret=signatures.encode_secret(secret))
    logged = {"events": webhook.events, "description": webhook.description} | detail
    return Made(shown=shown, kept=kept, object_id=webhook.id, object_name=_name(webhook), detail=logged)


def _name(webhook: WebhookBody) -> str | None:
    """For the audit log. Never the URL, which may hold a secret of the receiver."""
    return webhook.description or urlsplit(webhook.url).hostname


def _encrypt(cipher: SecretCipher, webhook_id: UUID, secret: bytes) -> bytes:
    try:
        return cipher.encrypt(webhook_id, secret)
    except EncryptionKeyError as fault:
        raise errors.unavailable("Webhook secrets cannot be encrypted. The server's log has the reason.") from fault


def _check_enabled(webhook: WebhookBody) -> None:
    if not webhook.enabled:
        raise errors.conflict("The webhook is disabled. Enable it first.")

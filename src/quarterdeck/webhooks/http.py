"""HTTP handlers of webhooks."""

from quarterdeck.auth.access import Access
from quarterdeck.changes.perform import Changes
from quarterdeck.core import errors
from quarterdeck.core.actors import Permission
from quarterdeck.core.call import Answer
from quarterdeck.core.secret_encryption import SecretCipher
from quarterdeck.core.settings import WebhookSettings
from quarterdeck.http.operation import Query, Refusal, operation
from quarterdeck.http.request import Request
from quarterdeck.webhooks import service
from quarterdeck.webhooks.model import (
    ChangeWebhookBody,
    CreatedWebhookBody,
    CreateWebhookBody,
    DeliveryState,
    RotateWebhookSecretBody,
    WebhookBody,
    WebhookDeliveryBody,
    WebhookDeliveryPage,
    WebhookPage,
)

_DISABLED = Refusal(
    "disabled",
    errors.conflict("The webhook is disabled. Enable it first."),
    "The webhook is disabled: manually, or because its receiver is gone or failed for days.",
    "Enable the webhook, then try again.",
)


@operation(
    summary="List the webhooks of a workspace",
    description="One page per call, newest first unless order=asc.",
    permission=Permission.WORKSPACE_READ,
    success_type=WebhookPage,
    success="One page. next_cursor is null on the last page.",
    paged=True,
    cursor_must_exist=False,
)
async def list_webhooks(request: Request, access: Access) -> WebhookPage:
    page = request.page_request()
    return await service.list_webhooks(access, request.call_without_body(), page)


@operation(
    summary="Create a webhook",
    description=(
        "Sends an event to the URL for every run that ends from now on, signed according to Standard Webhooks. Each "
        "event is delivered at least once; the order is not guaranteed."
    ),
    permission=Permission.KEY_MANAGE,
    payload=CreateWebhookBody,
    success_status=201,
    success_type=CreatedWebhookBody,
    success="The new webhook, with its signing secret, which is shown only once.",
    idempotent=True,
    etag=True,
    refusals=(
        Refusal(
            "too_many",
            errors.conflict("This workspace already has the maximum of 20 webhooks. Delete one first."),
            "The workspace has the maximum number of webhooks (default: 20).",
            "Delete a webhook that you no longer need.",
        ),
    ),
)
async def create_webhook(request: Request, changes: Changes, settings: WebhookSettings, cipher: SecretCipher) -> Answer:
    return await service.create_webhook(changes, settings, cipher, await request.call(CreateWebhookBody))


@operation(
    summary="Get a webhook",
    permission=Permission.WORKSPACE_READ,
    success_type=WebhookBody,
    success="The webhook.",
    etag=True,
)
async def get_webhook(request: Request, access: Access) -> WebhookBody:
    webhook_id = request.path_id("webhook_id")
    return await service.get_webhook(access, request.call_without_body(), webhook_id)


@operation(
    summary="Change a webhook",
    description=(
        "Changes only the given fields. Pending deliveries go to the new URL. Deliveries that become due while the "
        "webhook is disabled fail."
    ),
    permission=Permission.KEY_MANAGE,
    reads=True,
    payload=ChangeWebhookBody,
    success_type=WebhookBody,
    success="The changed webhook.",
    idempotent=True,
    etag=True,
    conditional=True,
)
async def change_webhook(request: Request, changes: Changes, settings: WebhookSettings) -> Answer:
    webhook_id = request.path_id("webhook_id")
    return await service.change_webhook(changes, settings, await request.call(ChangeWebhookBody), webhook_id)


@operation(
    summary="Delete a webhook",
    description="Also deletes its deliveries. A delivery that is being sent may still arrive.",
    permission=Permission.KEY_MANAGE,
    success_status=204,
    success_type=None,
    success="The webhook is deleted.",
    conditional=True,
)
async def delete_webhook(request: Request, changes: Changes) -> Answer:
    webhook_id = request.path_id("webhook_id")
    return await service.delete_webhook(changes, request.call_without_body(), webhook_id)


@operation(
    summary="Rotate the signing secret of a webhook",
    description=(
        "During the overlap, deliveries are signed with both secrets, so that the receiver can switch at any time. An "
        "even older secret ends now."
    ),
    permission=Permission.KEY_MANAGE,
    reads=True,
    payload=RotateWebhookSecretBody,
    success_type=CreatedWebhookBody,
    success="The webhook with its new secret, which is shown only once.",
    idempotent=True,
    etag=True,
    conditional=True,
)
async def rotate_webhook_secret(request: Request, changes: Changes, cipher: SecretCipher) -> Answer:
    webhook_id = request.path_id("webhook_id")
    return await service.rotate_webhook_secret(changes, cipher, await request.call(RotateWebhookSecretBody), webhook_id)


@operation(
    summary="Send a test event to a webhook",
    description="Sends an event of type webhook.test like any other event.",
    permission=Permission.KEY_MANAGE,
    success_status=201,
    success_type=WebhookDeliveryBody,
    success="The delivery. A worker sends it within about a second.",
    idempotent=True,
    refusals=(_DISABLED,),
)
async def test_webhook(request: Request, changes: Changes) -> Answer:
    webhook_id = request.path_id("webhook_id")
    return await service.test_webhook(changes, request.call_without_body(), webhook_id)


@operation(
    summary="List the deliveries of a webhook",
    description="One page per call, newest first unless order=asc. Ended deliveries are kept for 30 days by default.",
    permission=Permission.WORKSPACE_READ,
    success_type=WebhookDeliveryPage,
    success="One page. next_cursor is null on the last page.",
    paged=True,
    cursor_must_exist=False,
    queries=(Query("state", {"type": "string", "enum": list(DeliveryState)}, "Only deliveries in this state."),),
)
async def list_webhook_deliveries(request: Request, access: Access) -> WebhookDeliveryPage:
    webhook_id, page = request.path_id("webhook_id"), request.page_request()
    state = request.query_choice("state", DeliveryState)
    return await service.list_webhook_deliveries(access, request.call_without_body(), webhook_id, state, page)


@operation(
    summary="Send a delivery again",
    description="Sends the same payload with the same webhook-id again, immediately, and with all retries if it fails.",
    permission=Permission.KEY_MANAGE,
    reads=True,
    success_type=WebhookDeliveryBody,
    success="The pending delivery.",
    idempotent=True,
    refusals=(_DISABLED,),
)
async def redeliver_webhook(request: Request, changes: Changes) -> Answer:
    webhook_id, delivery_id = request.path_id("webhook_id"), request.path_id("delivery_id")
    return await service.redeliver_webhook(changes, request.call_without_body(), webhook_id, delivery_id)

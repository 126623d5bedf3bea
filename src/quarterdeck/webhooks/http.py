"""HTTP handlers of webhooks."""

from quarterdeck.auth.access import Access
from quarterdeck.changes.perform import Changes
from quarterdeck.core import errors
from quarterdeck.core.actors import Permission
from quarterdeck.core.call import Answer
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
from quarterdeck.webhooks.secret_encryption import SecretCipher

_DISABLED = Refusal(
    "disabled",
    errors.conflict("The webhook is disabled. Enable it first."),
    "The webhook is disabled, by a person or because its receiver was gone or failed for days.",
    "Enable it, then ask again.",
)


@operation(
    summary="List the webhooks of a workspace",
    description="One page per call, newest first unless order=asc.",
    permission=Permission.WORKSPACE_READ,
    success_type=WebhookPage,
    success="One page. next_cursor is null on the last.",
    paged=True,
    cursor_must_exist=False,
)
async def list_webhooks(request: Request, access: Access) -> WebhookPage:
    page = request.page_request()
    return await service.list_webhooks(access, request.call_without_body(), page)


@operation(
    summary="Create a webhook",
    description=(
        "Runs that end from now on are told of to its URL, signed as Standard Webhooks has it, at least once and in "
        "no promised order."
    ),
    permission=Permission.KEY_MANAGE,
    payload=CreateWebhookBody,
    success_status=201,
    success_type=CreatedWebhookBody,
    success="The new webhook, with its signing secret, which is shown only now.",
    idempotent=True,
    etag=True,
    refusals=(
        Refusal(
            "too_many",
            errors.conflict("A workspace has at most 20 webhooks."),
            "The workspace has as many webhooks as this server allows: 20 unless set otherwise.",
            "Delete one that is not needed.",
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
        "What is left out stays as it is. Deliveries that wait go to the new URL. Those that fall due while it is "
        "disabled have failed."
    ),
    permission=Permission.KEY_MANAGE,
    reads=True,
    payload=ChangeWebhookBody,
    success_type=WebhookBody,
    success="The webhook as it is now.",
    idempotent=True,
    etag=True,
    conditional=True,
)
async def change_webhook(request: Request, changes: Changes, settings: WebhookSettings) -> Answer:
    webhook_id = request.path_id("webhook_id")
    return await service.change_webhook(changes, settings, await request.call(ChangeWebhookBody), webhook_id)


@operation(
    summary="Delete a webhook",
    description="With its deliveries. One that is on its way may still arrive.",
    permission=Permission.KEY_MANAGE,
    success_status=204,
    success_type=None,
    success="It is deleted.",
    conditional=True,
)
async def delete_webhook(request: Request, changes: Changes) -> Answer:
    webhook_id = request.path_id("webhook_id")
    return await service.delete_webhook(changes, request.call_without_body(), webhook_id)


@operation(
    summary="Give a webhook a new signing secret",
    description=(
        "During the overlap every delivery carries a signature by each of the two, so that a receiver can change over "
        "at its own time. The secret before those two, if it was still used, ends now."
    ),
    permission=Permission.KEY_MANAGE,
    reads=True,
    payload=RotateWebhookSecretBody,
    success_type=CreatedWebhookBody,
    success="The webhook with its new secret, which is shown only now.",
    idempotent=True,
    etag=True,
    conditional=True,
)
async def rotate_webhook_secret(request: Request, changes: Changes, cipher: SecretCipher) -> Answer:
    webhook_id = request.path_id("webhook_id")
    return await service.rotate_webhook_secret(changes, cipher, await request.call(RotateWebhookSecretBody), webhook_id)


@operation(
    summary="Send a test to a webhook",
    description="An event of the type webhook.test, by the same way as every other.",
    permission=Permission.KEY_MANAGE,
    success_status=201,
    success_type=WebhookDeliveryBody,
    success="The delivery, which a worker sends within a second or so.",
    idempotent=True,
    refusals=(_DISABLED,),
)
async def test_webhook(request: Request, changes: Changes) -> Answer:
    webhook_id = request.path_id("webhook_id")
    return await service.test_webhook(changes, request.call_without_body(), webhook_id)


@operation(
    summary="List the deliveries of a webhook",
    description="One page per call, newest first unless order=asc. They are kept for a month unless set otherwise.",
    permission=Permission.WORKSPACE_READ,
    success_type=WebhookDeliveryPage,
    success="One page. next_cursor is null on the last.",
    paged=True,
    cursor_must_exist=False,
    queries=(
        Query("state", {"type": "string", "enum": list(DeliveryState)}, "Only deliveries that are in this state."),
    ),
)
async def list_webhook_deliveries(request: Request, access: Access) -> WebhookDeliveryPage:
    webhook_id, page = request.path_id("webhook_id"), request.page_request()
    state = request.query_choice("state", DeliveryState)
    return await service.list_webhook_deliveries(access, request.call_without_body(), webhook_id, state, page)


@operation(
    summary="Send a delivery again",
    description="The same bytes under the same webhook-id, whatever became of it before; at once, and by the whole "
    "schedule if that fails.",
    permission=Permission.KEY_MANAGE,
    reads=True,
    success_type=WebhookDeliveryBody,
    success="The delivery, waiting to be sent.",
    idempotent=True,
    refusals=(_DISABLED,),
)
async def redeliver_webhook(request: Request, changes: Changes) -> Answer:
    webhook_id, delivery_id = request.path_id("webhook_id"), request.path_id("delivery_id")
    return await service.redeliver_webhook(changes, request.call_without_body(), webhook_id, delivery_id)

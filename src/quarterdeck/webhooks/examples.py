"""Example values for the OpenAPI document."""

from msgspec.structs import asdict, replace

from quarterdeck.core.example_ids import ADA, DELIVERY, EVENING, MORNING, RUN, WEBHOOK
from quarterdeck.webhooks.model import (
    ChangeWebhookBody,
    CreatedWebhookBody,
    CreateWebhookBody,
    DeliveryState,
    RotateWebhookSecretBody,
    WebhookBody,
    WebhookDeliveryBody,
    WebhookDeliveryPage,
    WebhookEvent,
    WebhookPage,
)

# Shortened, so that neither people nor secret scanners take it for a real one.
_SECRET = "whsec_MfKQ9r8G…"
_URL = "https://hooks.example.com/quarterdeck"

_WEBHOOK = WebhookBody(
    id=WEBHOOK,
    url=_URL,
    events=[WebhookEvent.RUN_SUCCEEDED, WebhookEvent.RUN_FAILED],
    description="Tells the team's chat",
    enabled=True,
    disabled_reason=None,
    previous_secret_expires_at=None,
    created_at=MORNING,
    created_by=ADA,
    revision=1,
)
_DELIVERY = WebhookDeliveryBody(
    id=DELIVERY,
    webhook_id=WEBHOOK,
    event=WebhookEvent.RUN_SUCCEEDED,
    run_id=RUN,
    state=DeliveryState.DELIVERED,
    attempts=1,
    next_attempt_at=None,
    last_status=204,
    last_error=None,
    duration_ms=87,
    created_at=EVENING,
    delivered_at=EVENING,
)

EXAMPLES = (
    CreateWebhookBody(_URL, [WebhookEvent.RUN_SUCCEEDED, WebhookEvent.RUN_FAILED], "Tells the team's chat"),
    CreatedWebhookBody(**asdict(_WEBHOOK), secret=_SECRET),
    ChangeWebhookBody(events=[WebhookEvent.RUN_FAILED]),
    RotateWebhookSecretBody(3600),
    _WEBHOOK,
    WebhookPage([_WEBHOOK], None),
    replace(
        _DELIVERY,
        state=DeliveryState.PENDING,
        attempts=0,
        next_attempt_at=EVENING,
        last_status=None,
        duration_ms=None,
        delivered_at=None,
    ),
    WebhookDeliveryPage([_DELIVERY], None),
)

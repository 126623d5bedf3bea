"""Records of webhooks and deliveries, and the messages that are sent."""

from datetime import timedelta
from enum import StrEnum
from typing import Annotated
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict, replace

from quarterdeck.core.actors import ActorBody
from quarterdeck.core.example_ids import ADA, DELIVERY, EVENING, MORNING, RUN, WEBHOOK
from quarterdeck.core.text_types import MAX_URL_CHARACTERS, Line, Moment

_DAY_SECONDS = 24 * 3600

Url = Annotated[
    str,
    Meta(
        max_length=MAX_URL_CHARACTERS,
        pattern="^https?://",
        description="URL that receives the events: https with a public address, without user name and fragment.",
    ),
]


class WebhookEvent(StrEnum):
    """Events that a webhook can subscribe to."""

    RUN_SUCCEEDED = "run.succeeded"
    RUN_FAILED = "run.failed"
    RUN_CANCELLED = "run.cancelled"
    ACTION_REQUIRED = "action.required"
    ACTION_RESOLVED = "action.resolved"


# Sent on request, to any webhook.
TEST_EVENT = "webhook.test"

Events = Annotated[list[WebhookEvent], Meta(min_length=1, max_length=10)]


class CreateWebhookBody(Struct, frozen=True):
    url: Url
    events: Events
    description: Line | None = None


class ChangeWebhookBody(Struct, frozen=True):
    """Changes only the given fields."""

    url: Url | UnsetType = UNSET
    events: Events | UnsetType = UNSET
    description: Line | UnsetType | None = UNSET
    enabled: bool | UnsetType = UNSET


class RotateWebhookSecretBody(Struct, frozen=True):
    overlap_seconds: Annotated[
        int,
        Meta(ge=0, le=7 * _DAY_SECONDS, description="How long deliveries are also signed with the old secret."),
    ] = _DAY_SECONDS


class WebhookBody(Struct, frozen=True, kw_only=True):
    id: UUID
    url: str
    events: list[WebhookEvent]
    description: str | None
    enabled: bool
    disabled_reason: Annotated[str | None, Meta(description="Why the service disabled the webhook. null: it did not.")]
    previous_secret_expires_at: Annotated[
        Moment | None,
        Meta(description="Until when deliveries are also signed with the previous secret. May be in the past."),
    ]
    created_at: Moment
    created_by: ActorBody
    revision: Annotated[int, Meta(description="Number of changes. The ETag is derived from it.")]


class CreatedWebhookBody(WebhookBody, frozen=True, kw_only=True):
    secret: Annotated[
        str | UnsetType,
        Meta(description="Signing secret. Shown only once, never in a replayed response."),
    ] = UNSET


class WebhookPage(Struct, frozen=True):
    items: list[WebhookBody]
    next_cursor: UUID | None


class DeliveryState(StrEnum):
    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"


class WebhookDeliveryBody(Struct, frozen=True, kw_only=True):
    id: Annotated[UUID, Meta(description="Sent as webhook-id, the same for every attempt.")]
    webhook_id: UUID
    event: str
    run_id: Annotated[UUID | None, Meta(description="The run of the event. null for a test.")]
    state: DeliveryState
    attempts: int
    next_attempt_at: Moment | None
    last_status: Annotated[int | None, Meta(description="Status of the receiver's last response. null: no response.")]
    last_error: Annotated[str | None, Meta(description="Why the last attempt failed. null: it did not.")]
    duration_ms: Annotated[int | None, Meta(description="Duration of the last attempt. null: no connection.")]
    created_at: Moment
    delivered_at: Moment | None


class WebhookDeliveryPage(Struct, frozen=True):
    items: list[WebhookDeliveryBody]
    next_cursor: UUID | None


class NewWebhook(Struct, frozen=True):
    """A webhook about to be stored."""

    id: UUID
    workspace_id: UUID
    url: str
    host: str
    events: list[WebhookEvent]
    description: str | None
    secret: bytes
    created_by: UUID


class NewDelivery(Struct, frozen=True):
    id: UUID
    webhook_id: UUID
    event: str
    run_id: UUID | None
    payload: bytes


class TestData(Struct, frozen=True):
    """The `data` of a test message."""

    webhook_id: UUID
    workspace_id: UUID


class WebhookMessage(Struct, frozen=True):
    """The body of a request to a receiver."""

    type: str
    timestamp: Moment
    data: Struct


class Claimed(Struct, frozen=True):
    """An attempt that a worker has claimed."""

    id: UUID
    webhook_id: UUID
    event: str
    payload: bytes
    attempt: int
    # Number of the attempt in the retry schedule, from 1. A redelivery starts again at 1.
    turn: int


class Receiver(Struct, frozen=True):
    """What is needed to send to a webhook. Secrets are encrypted, the newest first."""

    id: UUID
    workspace_id: UUID
    url: str
    host: str
    enabled: bool
    secrets: list[bytes]


class DeliveryOutcome(Struct, frozen=True, kw_only=True):
    """How an attempt ended."""

    # None if there was no connection.
    duration_ms: int | None
    status: int | None = None
    # None if the receiver accepted it.
    error: str | None = None
    # Time until the next attempt; None if there is none.
    pause: timedelta | None = None
    # If set, the webhook is disabled for this reason.
    disable: str | None = None


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

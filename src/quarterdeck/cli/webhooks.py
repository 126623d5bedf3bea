"""`qd webhooks`."""

from datetime import timedelta
from typing import Annotated, Any

import typer

from quarterdeck.cli import completion, find
from quarterdeck.cli.commands import command
from quarterdeck.cli.options import Limit, Yes, argument, choice, confirm, duration, line, option, overlap_seconds
from quarterdeck.cli.output import Page, Result, cell, created_text, say
from quarterdeck.client import Client
from quarterdeck.client.models import CreatedWebhookBody, DeliveryState, WebhookBody, WebhookDeliveryBody, WebhookEvent

app = typer.Typer(rich_markup_mode=None)

WebhookId = Annotated[
    str, argument("WEBHOOK", "ID, ID prefix, description or URL of the webhook.", complete=completion.webhooks)
]
Event = Annotated[
    list[WebhookEvent] | None,
    choice(
        "EVENT", f"One of {', '.join(WebhookEvent)}. Can be repeated. Default: the events of runs.", values=WebhookEvent
    ),
]
State = Annotated[
    DeliveryState | None, choice("STATE", f"Only this state: {', '.join(DeliveryState)}.", values=DeliveryState)
]

_RUN_EVENTS = [WebhookEvent.RUN_SUCCEEDED, WebhookEvent.RUN_FAILED, WebhookEvent.RUN_CANCELLED]


@command(app, "list")
def list_(client: Client, limit: Limit = 50) -> Page[WebhookBody]:
    """List webhooks, newest first."""
    columns = ("ID", "URL", "EVENTS", "STATE", "DESCRIPTION")
    return Page(client.iter_webhooks(), limit, columns, _row, "No webhooks yet.")


@command(app)
def create(
    client: Client,
    url: Annotated[str, argument("URL", "Address that events are sent to.")],
    event: Event = None,
    description: Annotated[str | None, option("TEXT", "Description of the webhook.", parser=line)] = None,
) -> Result:
    """Create a webhook and print its signing secret. The secret is shown only once."""
    return _secret(client.create_webhook(url=url, events=event or _RUN_EVENTS, description=description))


@command(app)
def show(client: Client, webhook_id: WebhookId) -> Result:
    """Show a webhook."""
    webhook = client.get_webhook(find.webhook_id(client, webhook_id))
    facts = [
        ("webhook", webhook.id),
        ("url", webhook.url),
        ("description", webhook.description),
        ("events", ", ".join(webhook.events)),
        ("state", _state_text(webhook)),
        ("reason", webhook.disabled_reason),
        ("previous secret until", webhook.previous_secret_expires_at),
        ("created", created_text(webhook)),
    ]
    return Result(webhook, facts)


@command(app)
def enable(client: Client, webhook_id: WebhookId) -> None:
    """Enable a disabled webhook."""
    changed = client.change_webhook(find.webhook_id(client, webhook_id), enabled=True)
    say(f"{_state_text(changed)} {changed.id}")


@command(app)
def disable(client: Client, webhook_id: WebhookId) -> None:
    """Disable a webhook. Its deliveries fail until it is enabled."""
    changed = client.change_webhook(find.webhook_id(client, webhook_id), enabled=False)
    say(f"{_state_text(changed)} {changed.id}")


@command(app)
def rotate(
    client: Client,
    webhook_id: WebhookId,
    overlap: Annotated[
        timedelta | None,
        option("DURATION", "How long messages are also signed with the old secret. Default: 1d.", parser=duration),
    ] = None,
) -> Result:
    """Create a new signing secret for a webhook."""
    found_id = find.webhook_id(client, webhook_id)
    return _secret(client.rotate_webhook_secret(found_id, overlap_seconds=overlap_seconds(overlap)))


@command(app)
def delete(client: Client, webhook_id: WebhookId, yes: Yes = False) -> None:
    """Delete a webhook with its deliveries. This can't be undone."""
    found_id = find.webhook_id(client, webhook_id)
    confirm(lambda: f"Delete the webhook to {client.get_webhook(found_id).url}?", yes=yes)
    client.delete_webhook(found_id)
    say(f"deleted {found_id}")


@command(app, "test")
def send_test(client: Client, webhook_id: WebhookId) -> Result:
    """Send a test event. `qd webhooks deliveries` shows the result."""
    return _sent(client.test_webhook(find.webhook_id(client, webhook_id)))


@command(app)
def deliveries(
    client: Client, webhook_id: WebhookId, state: State = None, limit: Limit = 50
) -> Page[WebhookDeliveryBody]:
    """List the deliveries of a webhook, newest first."""
    filters: dict[str, Any] = {"state": state}
    found = client.iter_webhook_deliveries(find.webhook_id(client, webhook_id), **filters)
    columns = ("ID", "EVENT", "STATE", ">ATTEMPTS", ">STATUS", "CREATED", "ERROR")
    return Page(found, limit, columns, _delivery_row, "No deliveries.")


@command(app)
def redeliver(
    client: Client,
    webhook_id: WebhookId,
    delivery: Annotated[str, argument("DELIVERY", "ID or ID prefix of the delivery.")],
) -> Result:
    """Send a delivery again."""
    found_id = find.webhook_id(client, webhook_id)
    return _sent(client.redeliver_webhook(found_id, find.delivery_id(client, found_id, delivery)))


def _secret(created: CreatedWebhookBody) -> Result:
    text = f"webhook {created.id}\nsecret {created.secret}"
    return Result(created, text, hint="Save the secret now. It is shown only once.")


def _sent(delivery: WebhookDeliveryBody) -> Result:
    return Result(delivery, f"{delivery.state} {delivery.id}")


def _row(one: WebhookBody) -> list[object]:
    return [one.id, cell(one.url), " ".join(one.events), _state_text(one), cell(one.description or "")]


def _state_text(webhook: WebhookBody) -> str:
    return "enabled" if webhook.enabled else "disabled"


def _delivery_row(one: WebhookDeliveryBody) -> list[object]:
    return [one.id, one.event, one.state, one.attempts, one.last_status, one.created_at, one.last_error]

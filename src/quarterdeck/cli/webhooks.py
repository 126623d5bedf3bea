"""`qd webhooks`."""

from datetime import timedelta
from typing import Annotated, Any

import typer

from quarterdeck.cli import completion, find
from quarterdeck.cli.connection import open_client
from quarterdeck.cli.options import AsJson, Limit, Profile, Yes, argument, choice, confirm, duration, line, option
from quarterdeck.cli.output import (
    Column,
    cell,
    created_text,
    note,
    print_facts,
    print_json,
    print_list,
    print_result,
    say,
)
from quarterdeck.client.models import CreatedWebhookBody, DeliveryState, WebhookBody, WebhookDeliveryBody, WebhookEvent

app = typer.Typer(rich_markup_mode=None, help="Manage webhooks and their deliveries.")

WebhookId = Annotated[
    str, argument("WEBHOOK", "ID, ID prefix, description or URL of the webhook.", complete=completion.webhooks)
]

_RUN_EVENTS = [WebhookEvent.RUN_SUCCEEDED, WebhookEvent.RUN_FAILED, WebhookEvent.RUN_CANCELLED]


@app.command("list")
def list_(limit: Limit = 50, profile: Profile = None, as_json: AsJson = False) -> None:
    """List webhooks, newest first."""
    with open_client(profile) as client:
        print_list(
            client.iter_webhooks(),
            ("ID", "URL", "EVENTS", "STATE", "DESCRIPTION"),
            _row,
            "No webhooks yet.",
            limit,
            as_json=as_json,
        )


@app.command()
def create(
    url: Annotated[str, argument("URL", "Address that events are sent to.")],
    event: Annotated[
        list[WebhookEvent] | None,
        choice(
            "EVENT",
            f"One of {', '.join(WebhookEvent)}. Can be repeated. Default: the events of runs.",
            values=WebhookEvent,
        ),
    ] = None,
    description: Annotated[str | None, option("TEXT", "Description of the webhook.", parser=line)] = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Create a webhook and print its signing secret. The secret is shown only once."""
    with open_client(profile) as client:
        created = client.create_webhook(url=url, events=event or _RUN_EVENTS, description=description)
    _show_secret(created, as_json=as_json)


@app.command()
def show(webhook_id: WebhookId, profile: Profile = None, as_json: AsJson = False) -> None:
    """Show a webhook."""
    with open_client(profile) as client:
        webhook = client.get_webhook(find.webhook_id(client, webhook_id))
    if as_json:
        print_json(webhook)
        return
    print_facts(
        [
            ("webhook", webhook.id),
            ("url", webhook.url),
            ("description", webhook.description),
            ("events", ", ".join(webhook.events)),
            ("state", _state_text(webhook)),
            ("reason", webhook.disabled_reason),
            ("previous secret until", webhook.previous_secret_expires_at),
            ("created", created_text(webhook)),
        ]
    )


@app.command()
def enable(webhook_id: WebhookId, profile: Profile = None) -> None:
    """Enable a disabled webhook."""
    _set_enabled(webhook_id, profile, is_enabled=True)


@app.command()
def disable(webhook_id: WebhookId, profile: Profile = None) -> None:
    """Disable a webhook. Its deliveries fail until it is enabled."""
    _set_enabled(webhook_id, profile, is_enabled=False)


@app.command()
def rotate(
    webhook_id: WebhookId,
    overlap: Annotated[
        timedelta | None,
        option("DURATION", "How long messages are also signed with the old secret. Default: 1d.", parser=duration),
    ] = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Create a new signing secret for a webhook."""
    with open_client(profile) as client:
        overlap = timedelta(days=1) if overlap is None else overlap
        found_id = find.webhook_id(client, webhook_id)
        created = client.rotate_webhook_secret(found_id, overlap_seconds=int(overlap.total_seconds()))
    _show_secret(created, as_json=as_json)


@app.command()
def delete(webhook_id: WebhookId, yes: Yes = False, profile: Profile = None) -> None:
    """Delete a webhook with its deliveries. This can't be undone."""
    with open_client(profile) as client:
        found_id = find.webhook_id(client, webhook_id)
        if not yes:
            confirm(f"Delete the webhook to {client.get_webhook(found_id).url}?", yes=yes)
        client.delete_webhook(found_id)
    say(f"deleted {found_id}")


@app.command("test")
def send_test(webhook_id: WebhookId, profile: Profile = None, as_json: AsJson = False) -> None:
    """Send a test event. `qd webhooks deliveries` shows the result."""
    with open_client(profile) as client:
        _show_delivery(client.test_webhook(find.webhook_id(client, webhook_id)), as_json=as_json)


@app.command()
def deliveries(
    webhook_id: WebhookId,
    state: Annotated[
        DeliveryState | None, choice("STATE", f"Only this state: {', '.join(DeliveryState)}.", values=DeliveryState)
    ] = None,
    limit: Limit = 50,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """List the deliveries of a webhook, newest first."""
    filters: dict[str, Any] = {"state": state}
    with open_client(profile) as client:
        print_list(
            client.iter_webhook_deliveries(find.webhook_id(client, webhook_id), **filters),
            ("ID", "EVENT", "STATE", Column("ATTEMPTS", right=True), Column("STATUS", right=True), "CREATED", "ERROR"),
            _delivery_row,
            "No deliveries.",
            limit,
            as_json=as_json,
        )


@app.command()
def redeliver(
    webhook_id: WebhookId,
    delivery: Annotated[str, argument("DELIVERY", "ID or ID prefix of the delivery.")],
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Send a delivery again."""
    with open_client(profile) as client:
        found_id = find.webhook_id(client, webhook_id)
        found = client.redeliver_webhook(found_id, find.delivery_id(client, found_id, delivery))
        _show_delivery(found, as_json=as_json)


def _set_enabled(webhook_id: str, profile: str | None, *, is_enabled: bool) -> None:
    with open_client(profile) as client:
        changed = client.change_webhook(find.webhook_id(client, webhook_id), enabled=is_enabled)
    say(f"{_state_text(changed)} {changed.id}")


def _show_secret(created: CreatedWebhookBody, *, as_json: bool) -> None:
    print_result(created, f"webhook {created.id}\nsecret {created.secret}", as_json=as_json)
    note("Save the secret now. It is shown only once.")


def _show_delivery(delivery: WebhookDeliveryBody, *, as_json: bool) -> None:
    print_result(delivery, f"{delivery.state} {delivery.id}", as_json=as_json)


def _row(webhook: WebhookBody) -> list[object]:
    events = " ".join(webhook.events)
    return [webhook.id, cell(webhook.url), events, _state_text(webhook), cell(webhook.description or "")]


def _state_text(webhook: WebhookBody) -> str:
    return "enabled" if webhook.enabled else "disabled"


def _delivery_row(delivery: WebhookDeliveryBody) -> list[object]:
    return [
        delivery.id,
        delivery.event,
        delivery.state,
        delivery.attempts,
        delivery.last_status,
        delivery.created_at,
        delivery.last_error,
    ]

"""`qd webhooks`."""

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quarterdeck.cli import completion, find
from quarterdeck.cli.arguments import WebhookId
from quarterdeck.cli.connection import open_client
from quarterdeck.cli.options import AsJson, Limit, Profile, Yes, confirm, duration, line, text
from quarterdeck.cli.output import Column, actor_name, cell, date_text, note, print_facts, print_json, print_list, say

if TYPE_CHECKING:
    from quarterdeck.client.models import CreatedWebhookBody, WebhookBody, WebhookDeliveryBody, WebhookEvent

app = typer.Typer(rich_markup_mode=None, help="Manage webhooks and their deliveries.")

_RUN_EVENTS = ("run.succeeded", "run.failed", "run.cancelled")
_EVENTS = (*_RUN_EVENTS, "action.required", "action.resolved")
_STATES = ("pending", "delivered", "failed")


def _event(given: str) -> "WebhookEvent":
    from quarterdeck.client.models import WebhookEvent

    try:
        return WebhookEvent(given)
    except ValueError:
        raise typer.BadParameter(f"{given!r} is not one of {', '.join(_EVENTS)}") from None


def _state(given: str) -> str:
    if given not in _STATES:
        raise typer.BadParameter(f"{given!r} is not one of {', '.join(_STATES)}")
    return given


@app.command("list")
def list_(limit: Limit = 50, profile: Profile = None, as_json: AsJson = False) -> None:
    """List webhooks, newest first."""
    with open_client(profile) as client:
        print_list(
            client.iter_webhooks(),
            limit,
            ("ID", "URL", "EVENTS", "STATE", "DESCRIPTION"),
            _row,
            as_json=as_json,
            empty="No webhooks yet.",
        )


@app.command()
def create(
    url: Annotated[str, typer.Argument(parser=text, metavar="URL", help="Address that events are sent to.")],
    event: Annotated[
        list[str] | None,
        typer.Option(
            parser=_event,
            metavar="EVENT",
            help=f"One of {', '.join(_EVENTS)}. Can be repeated. Default: the events of runs.",
            autocompletion=completion.one_of(_EVENTS),
        ),
    ] = None,
    description: Annotated[
        str | None, typer.Option(parser=line, metavar="TEXT", help="Description of the webhook.")
    ] = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Create a webhook and print its signing secret. The secret is shown only once."""
    events: Any = event or [_event(each) for each in _RUN_EVENTS]
    with open_client(profile) as client:
        created = client.create_webhook(url=url, events=events, description=description)
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
            ("webhook", str(webhook.id)),
            ("url", webhook.url),
            ("description", webhook.description),
            ("events", ", ".join(webhook.events)),
            ("state", _state_text(webhook)),
            ("reason", webhook.disabled_reason),
            ("previous secret until", date_text(webhook.previous_secret_expires_at) or None),
            ("created", f"{date_text(webhook.created_at)} by {actor_name(webhook.created_by)}"),
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
        typer.Option(
            parser=duration,
            metavar="DURATION",
            help="How long messages are also signed with the old secret. Default: 1d.",
        ),
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
        str | None,
        typer.Option(
            parser=_state,
            metavar="STATE",
            help=f"Only this state: {', '.join(_STATES)}.",
            autocompletion=completion.one_of(_STATES),
        ),
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
            limit,
            ("ID", "EVENT", "STATE", Column("ATTEMPTS", right=True), Column("STATUS", right=True), "CREATED", "ERROR"),
            _delivery_row,
            as_json=as_json,
            empty="No deliveries.",
        )


@app.command()
def redeliver(
    webhook_id: WebhookId,
    delivery: Annotated[str, typer.Argument(parser=text, metavar="DELIVERY", help="ID or ID prefix of the delivery.")],
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


def _show_secret(created: "CreatedWebhookBody", *, as_json: bool) -> None:
    if as_json:
        print_json(created)
    else:
        say(f"webhook {created.id}\nsecret {created.secret}")
    note("Save the secret now. It is shown only once.")


def _show_delivery(delivery: "WebhookDeliveryBody", *, as_json: bool) -> None:
    if as_json:
        print_json(delivery)
    else:
        say(f"{delivery.state} {delivery.id}")


def _row(webhook: "WebhookBody") -> list[str]:
    events = " ".join(webhook.events)
    return [str(webhook.id), cell(webhook.url), events, _state_text(webhook), cell(webhook.description or "")]


def _state_text(webhook: "WebhookBody") -> str:
    return "enabled" if webhook.enabled else "disabled"


def _delivery_row(delivery: "WebhookDeliveryBody") -> list[str]:
    return [
        str(delivery.id),
        delivery.event,
        delivery.state,
        str(delivery.attempts),
        "" if delivery.last_status is None else str(delivery.last_status),
        date_text(delivery.created_at),
        delivery.last_error or "",
    ]

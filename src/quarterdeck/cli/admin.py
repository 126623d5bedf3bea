"""`qd admin`: commands for operators, which work on the database directly."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar
from uuid import UUID

import typer
from msgspec import UNSET, UnsetType, ValidationError, convert

from quarterdeck.cli.exit_codes import ExitCode, UsageError
from quarterdeck.cli.options import AsJson, Permissions, date, email, file_name, line, usd, uuid
from quarterdeck.cli.output import date_text, note, print_json, say, size

if TYPE_CHECKING:
    from quarterdeck.core.settings import Settings
    from quarterdeck.db.database import Connection
    from quarterdeck.workspaces.model import WorkspaceBody

T = TypeVar("T")

app = typer.Typer(rich_markup_mode=None, help="For operators: workspaces, members, keys, backup and restore.")


Data = Annotated[
    str | None, typer.Option("--data", metavar="DIR", help="Folder of the embedded database. Default: ./data.")
]
Workspace = Annotated[UUID, typer.Option(parser=uuid, metavar="ID", help="ID of the workspace.")]
Email = Annotated[str, typer.Option(parser=email, metavar="EMAIL", help="Email address of the person.")]

BackupFile = Annotated[str, typer.Argument(parser=file_name, metavar="FILE", help="File of the backup.")]


@app.command()
def create_workspace(
    name: Annotated[str, typer.Option(parser=line, metavar="NAME", help="Name of the workspace.")],
    owner_email: Annotated[str, typer.Option(parser=email, metavar="EMAIL", help="Email address of the owner.")],
    as_json: AsJson = False,
    data: Data = None,
) -> None:
    """Create a workspace. Use create-key to create its first API key."""
    from quarterdeck.workspaces import service

    workspace_id = _on_database(data, lambda connection, _: service.create_workspace(connection, name, owner_email))
    _show({"id": workspace_id, "name": name}, f"workspace {workspace_id}", as_json=as_json)


@app.command()
def change_workspace(
    workspace: Workspace,
    name: Annotated[str | None, typer.Option(parser=line, metavar="NAME", help="Name of the workspace.")] = None,
    max_key_days: Annotated[
        int | None, typer.Option(min=1, max=36500, metavar="DAYS", help="Maximum lifetime of new keys, in days.")
    ] = None,
    no_max_key_days: Annotated[bool, typer.Option("--no-max-key-days", help="Remove the maximum lifetime.")] = False,
    owner: Annotated[
        str | None,
        typer.Option(parser=email, metavar="EMAIL", help="Email address of the new owner, who must be a member."),
    ] = None,
    daily_max_cost_usd: Annotated[
        float | None, typer.Option(parser=usd, metavar="USD", help="Maximum cost per day (UTC), in US dollars.")
    ] = None,
    no_daily_max_cost_usd: Annotated[
        bool, typer.Option("--no-daily-max-cost-usd", help="Remove the maximum cost per day.")
    ] = False,
    daily_max_tokens: Annotated[
        int | None, typer.Option(min=1, max=2**53, metavar="TOKENS", help="Maximum tokens per day (UTC).")
    ] = None,
    no_daily_max_tokens: Annotated[
        bool, typer.Option("--no-daily-max-tokens", help="Remove the maximum tokens per day.")
    ] = False,
    retention: Annotated[
        list[str] | None,
        typer.Option(metavar="KIND=DAYS", help="Days for which data is kept, as in `qd retention`. Can be repeated."),
    ] = None,
    as_json: AsJson = False,
    data: Data = None,
) -> None:
    """Change the given settings of a workspace."""
    from quarterdeck.cli.retention import parse_retention
    from quarterdeck.workspaces import service
    from quarterdeck.workspaces.model import SetRetention

    days = _given_or_removed("max-key-days", max_key_days, removed=no_max_key_days)
    cost = _given_or_removed("daily-max-cost-usd", daily_max_cost_usd, removed=no_daily_max_cost_usd)
    tokens = _given_or_removed("daily-max-tokens", daily_max_tokens, removed=no_daily_max_tokens)
    try:
        kept = convert(parse_retention(retention or []), SetRetention)
    except ValidationError as fault:
        raise UsageError(f"--retention: {fault}") from fault
    if (name, days, owner, cost, tokens, kept) == (None, UNSET, None, UNSET, UNSET, SetRetention()):
        raise UsageError("Nothing to change. Use --name, --max-key-days, --owner or another option of --help.")

    async def change(connection: "Connection", settings: "Settings") -> "WorkspaceBody":
        await service.configure_workspace(
            connection,
            workspace,
            name=_or_unset(name),
            max_key_days=days,
            owner_email=_or_unset(owner),
            daily_max_cost_usd=cost,
            daily_max_tokens=tokens,
            retention=kept,
        )
        return await service.show_workspace(connection, workspace, settings.default_retention)

    changed = _on_database(data, change)
    _show(changed, _workspace_text(changed), as_json=as_json)


@app.command()
def show_workspace(workspace: Workspace, as_json: AsJson = False, data: Data = None) -> None:
    """Show a workspace."""
    from quarterdeck.workspaces import service

    found = _on_database(
        data,
        lambda connection, settings: service.show_workspace(connection, workspace, settings.default_retention),
    )
    _show(found, _workspace_text(found), as_json=as_json)


@app.command()
def list_workspaces(as_json: AsJson = False, data: Data = None) -> None:
    """List all workspaces, oldest first."""
    from quarterdeck.workspaces import service

    found = _on_database(
        data, lambda connection, settings: service.all_workspaces(connection, settings.default_retention)
    )
    lines = [f"{one.id}  {one.owner.primary_email}  {one.name}" for one in found]
    _show({"items": found}, "\n".join(lines) or "No workspaces.", as_json=as_json)


@app.command()
def create_key(
    workspace: Workspace,
    label: Annotated[str, typer.Option(parser=line, metavar="LABEL", help="Label of the key.")],
    permission: Permissions,
    expires_at: Annotated[
        datetime | None, typer.Option(parser=date, metavar="TIME", help="Expiration date. Default: never.")
    ] = None,
    as_email: Annotated[
        str | None, typer.Option("--as", parser=email, metavar="EMAIL", help="Creator of the key. Default: the owner.")
    ] = None,
    as_json: AsJson = False,
    data: Data = None,
) -> None:
    """Create an API key and print its secret. The secret is shown only once."""
    from quarterdeck.api_keys.model import CreateApiKeyBody
    from quarterdeck.workspaces import service

    body = CreateApiKeyBody(label, permission, expires_at)
    created = _on_database(
        data,
        lambda connection, settings: service.create_key(
            connection, settings.key.environment, workspace, body, as_email
        ),
    )
    _show(created, f"key {created.id}\nsecret {created.secret}", as_json=as_json)


@app.command()
def add_member(workspace: Workspace, email: Email, as_json: AsJson = False, data: Data = None) -> None:
    """Add a person to a workspace."""
    from quarterdeck.workspaces import service

    user_id = _on_database(data, lambda connection, _: service.add_member(connection, workspace, email))
    _show({"user_id": user_id, "email": email}, f"member {user_id}", as_json=as_json)


@app.command()
def remove_member(
    workspace: Workspace,
    email: Email,
    revoke_keys: Annotated[
        bool, typer.Option("--revoke-keys", help="Also revoke the keys that the person created.")
    ] = False,
    as_json: AsJson = False,
    data: Data = None,
) -> None:
    """Remove a person from a workspace. Lists the keys that the person created."""
    from quarterdeck.workspaces import service

    keys = _on_database(
        data, lambda connection, _: service.remove_member(connection, workspace, email, revoke_keys=revoke_keys)
    )
    lines = [f"{key.id}  {key.prefix}…  {'revoked' if key.revoked_at else 'active'}  {key.label}" for key in keys]
    if any(key.revoked_at is None for key in keys):
        lines.append("Active keys keep working. Run this again with --revoke-keys to revoke them.")
    _show({"email": email, "keys": keys}, "\n".join(lines) or "This person created no keys.", as_json=as_json)


@app.command()
def list_members(workspace: Workspace, as_json: AsJson = False, data: Data = None) -> None:
    """List current and former members, oldest first."""
    from quarterdeck.workspaces import service

    found = _on_database(data, lambda connection, _: service.all_members(connection, workspace))
    lines = [
        f"{one.user.user_id}  {'former' if one.ended_at else one.role}  {one.user.primary_email}"
        f"  {one.user.display_name or ''}".rstrip()
        for one in found
    ]
    _show({"items": found}, "\n".join(lines), as_json=as_json)


@app.command()
def set_user(
    email: Email,
    display_name: Annotated[
        str | None, typer.Option(parser=line, metavar="NAME", help="Display name of the person.")
    ] = None,
    no_display_name: Annotated[bool, typer.Option("--no-display-name", help="Remove the display name.")] = False,
    as_json: AsJson = False,
    data: Data = None,
) -> None:
    """Set the display name of a person in all workspaces."""
    from quarterdeck.workspaces import service

    if (display_name is None) is not no_display_name:
        raise UsageError("Use either --display-name or --no-display-name")
    user = _on_database(data, lambda connection, _: service.set_user(connection, email, display_name))
    _show(user, f"user {user.user_id}", as_json=as_json)


# The name of release 0.1.
@app.command("reseal-webhooks", hidden=True)
@app.command()
def reseal_secrets(as_json: AsJson = False, data: Data = None) -> None:
    """Encrypt all secrets with the first sealing key. Older keys can then be removed."""
    resealed = _on_database(data, _reseal)
    _show({"resealed": resealed}, f"resealed {resealed} secrets", as_json=as_json)


@app.command()
def backup(
    file: BackupFile,
    webhook_keys: Annotated[
        bool,
        typer.Option(
            "--webhook-keys/--no-webhook-keys",
            help="Include the keys that encrypt the secrets of webhooks and credentials.",
        ),
    ] = True,
    as_json: AsJson = False,
    data: Data = None,
) -> None:
    """Back up the database, skills and files to one file. The server can keep running."""
    from quarterdeck.cli.backups import back_up

    path = Path(file)
    made = back_up(_settings(data), path, with_keys=webhook_keys)
    file_bytes = path.stat().st_size
    counts = {"rows": made.rows, "archives": len(made.archives), "webhook_keys": made.keys is not None}
    text = (
        f"Backed up {made.rows:,} rows and {len(made.archives):,} skill archives and files to {file}"
        f" ({size(file_bytes)})."
    )
    _show({"file": file, "bytes": file_bytes, **counts}, text, as_json=as_json)
    if made.keys is not None:
        note("The backup contains the keys that encrypt secrets. Store it safely, or use --no-webhook-keys.")


@app.command()
def restore(file: BackupFile, as_json: AsJson = False, data: Data = None) -> None:
    """Restore a backup into an empty data folder or database. Stop the server first."""
    from quarterdeck.cli.backups import restore as restore_from

    made = restore_from(_settings(data), Path(file))
    text = (
        f"Restored {made.rows:,} rows and {len(made.archives):,} skill archives and files, backed up at"
        f" {date_text(made.created_at)} by release {made.release}."
    )
    counts = {"rows": made.rows, "archives": len(made.archives), "webhook_keys": made.keys is not None}
    _show({"release": made.release, "created_at": made.created_at, **counts}, text, as_json=as_json)
    if missing := _on_database(data, _missing_keys):
        note(missing)


@app.command()
def move_bundles(
    keep: Annotated[bool, typer.Option("--keep", help="Keep the contents in the old store.")] = False,
    concurrency: Annotated[int, typer.Option(min=1, max=64, metavar="COUNT", help="Number of parallel copies.")] = 8,
    as_json: AsJson = False,
    data: Data = None,
) -> None:
    """Move contents to the bundle store. The server can keep running."""
    from quarterdeck.cli.bundle_move import move_bundles as move

    moved = move(_settings(data), keep=keep, concurrency=concurrency)
    lines = [
        f"{'Copied' if keep else 'Moved'} {moved.contents:,} skill archives and files ({size(moved.bytes)})."
        f" {moved.present:,} were moved before."
    ]
    if moved.unknown:
        lines.append(f"{moved.unknown:,} objects of the fallback store are unknown to the database and were left.")
    lines += [f"Missing in both stores: {sha256}" for sha256 in moved.missing]
    lines += [f"Damaged, not moved: {sha256}" for sha256 in moved.damaged]
    _show(moved, "\n".join(lines), as_json=as_json)
    if moved.missing or moved.damaged:
        raise typer.Exit(ExitCode.UNSUCCESSFUL)


def _settings(data: str | None) -> "Settings":
    from quarterdeck.cli.server_settings import server_settings

    return server_settings(data=data)


def _on_database(data: str | None, work: "Callable[[Connection, Settings], Awaitable[T]]") -> T:
    from quarterdeck.cli.database import on_database

    settings = _settings(data)

    async def on_connection(connection: "Connection") -> T:
        return await work(connection, settings)

    return on_database(settings, on_connection)


async def _reseal(connection: "Connection", settings: "Settings", *, try_only: bool = False) -> int:
    from quarterdeck.connections.credentials import service as credentials
    from quarterdeck.core.secret_encryption import SecretCipher
    from quarterdeck.webhooks import service as webhooks

    cipher = SecretCipher(settings.webhook, settings.data_dir)
    async with connection.transaction(force_rollback=try_only):
        resealed = await webhooks.reseal_webhooks(connection, cipher)
        return resealed + await credentials.reseal_credentials(connection, cipher)


async def _missing_keys(connection: "Connection", settings: "Settings") -> str | None:
    """What is missing to decrypt the stored secrets, and where it belongs."""
    from quarterdeck.core.errors import ServiceError
    from quarterdeck.core.secret_encryption import KEY_FILE

    try:
        await _reseal(connection, settings, try_only=True)
    except ServiceError as error:
        if settings.webhook.sealing_keys is not None:
            return f"{error} Add it to QUARTERDECK_WEBHOOK_SEALING_KEYS."
        return f"{error} Copy {KEY_FILE} to {settings.data_dir} or set QUARTERDECK_WEBHOOK_SEALING_KEYS."
    return None


def _or_unset(given: T | None) -> T | UnsetType:
    return UNSET if given is None else given


def _given_or_removed(option: str, given: T | None, *, removed: bool) -> T | UnsetType | None:
    if given is not None and removed:
        raise UsageError(f"Use either --{option} or --no-{option}")
    return None if removed else _or_unset(given)


def _workspace_text(workspace: "WorkspaceBody") -> str:
    from quarterdeck.cli.retention import KINDS

    days, day = workspace.max_key_days, workspace.limits.day
    kept = ", ".join(f"{KINDS[kind]}={days}" for kind, days in workspace.retention.set_days().items())
    return (
        f"workspace {workspace.id}\nname {workspace.name}\nowner {workspace.owner.primary_email}\n"
        f"maximum key lifetime {'none' if days is None else f'{days} days'}\n"
        f"maximum cost per day {'none' if day.max_cost_usd is None else f'${day.max_cost_usd:,.2f}'}\n"
        f"maximum tokens per day {'none' if day.max_tokens is None else f'{day.max_tokens:,}'}\n"
        f"retention {kept or 'default'}"
    )


def _show(record: object, text: str, *, as_json: bool) -> None:
    if as_json:
        print_json(record)
    else:
        say(text)

"""`qd admin`: commands for operators, which work on the database directly."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar
from uuid import UUID

import typer
from msgspec import UNSET, UnsetType, ValidationError, convert

from quarterdeck.api_keys.model import CreateApiKeyBody
from quarterdeck.backups.backup_file import open_backup
from quarterdeck.backups.model import BackupError, BackupManifest
from quarterdeck.backups.restore_backup import Restore, check_backup
from quarterdeck.backups.write_backup import write_backup
from quarterdeck.blobs.blob_store import BlobStore, open_blob_store, open_fallback_store
from quarterdeck.blobs.move import Move, Moved, are_same
from quarterdeck.blobs.service import spool_folder
from quarterdeck.cli.database import app_role, migrated, on_database, owner_url, server_settings
from quarterdeck.cli.errors import CliError, ExitCode
from quarterdeck.cli.options import (
    AsJson,
    Permissions,
    argument,
    check_either,
    choice,
    date,
    email,
    file_name,
    flag,
    line,
    option,
    or_unset,
    usd,
    uuid,
    whole_number,
)
from quarterdeck.cli.output import Result, count_text, date_text, note, progress_bar, size
from quarterdeck.cli.workspace import KINDS, parse_retention
from quarterdeck.connections.credentials import service as credentials
from quarterdeck.core.actors import Role
from quarterdeck.core.errors import ServiceError
from quarterdeck.core.secret_encryption import KEY_FILE, SecretCipher
from quarterdeck.core.settings import Settings
from quarterdeck.db.database import Connection, Database
from quarterdeck.people import invitations, members, profiles
from quarterdeck.webhooks import service as webhooks
from quarterdeck.workspaces import service
from quarterdeck.workspaces.model import SetRetention, WorkspaceBody

T = TypeVar("T")

app = typer.Typer(rich_markup_mode=None)

Data = Annotated[str | None, option("DIR", "Folder of the embedded database. Default: ./data.")]
Workspace = Annotated[UUID, option("ID", "ID of the workspace.", parser=uuid)]
Email = Annotated[str, option("EMAIL", "Email address of the person.", parser=email)]

RoleOption = Annotated[str, choice("ROLE", "owner, admin, member or viewer.", values=[str(role) for role in Role])]

BackupFile = Annotated[str, argument("FILE", "File of the backup.", parser=file_name)]


@app.command()
def create_workspace(
    name: Annotated[str, option("NAME", "Name of the workspace.", parser=line)],
    owner_email: Annotated[str, option("EMAIL", "Email address of the owner.", parser=email)],
    as_json: AsJson = False,
    data: Data = None,
) -> None:
    """Create a workspace. Use create-key to create its first API key."""
    workspace_id = on_database(data, lambda connection, _: service.create_workspace(connection, name, owner_email))
    Result({"id": workspace_id, "name": name}, f"workspace {workspace_id}").print(as_json=as_json)


@app.command()
def change_workspace(
    workspace: Workspace,
    name: Annotated[str | None, option("NAME", "Name of the workspace.", parser=line)] = None,
    max_key_days: Annotated[
        int | None, option("DAYS", "Maximum lifetime of new keys, in days.", parser=whole_number(1, 36500))
    ] = None,
    no_max_key_days: Annotated[bool, flag("--no-max-key-days", "Remove the maximum lifetime.")] = False,
    owner: Annotated[
        str | None, option("EMAIL", "Email address of the new owner, who must be a member.", parser=email)
    ] = None,
    daily_max_cost_usd: Annotated[
        float | None, option("USD", "Maximum cost per day (UTC), in US dollars.", parser=usd)
    ] = None,
    no_daily_max_cost_usd: Annotated[bool, flag("--no-daily-max-cost-usd", "Remove the maximum cost per day.")] = False,
    daily_max_tokens: Annotated[
        int | None, option("TOKENS", "Maximum tokens per day (UTC).", parser=whole_number(1, 2**53))
    ] = None,
    no_daily_max_tokens: Annotated[bool, flag("--no-daily-max-tokens", "Remove the maximum tokens per day.")] = False,
    retention: Annotated[
        list[str] | None, option("KIND=DAYS", "Days for which data is kept, as in `qd retention`. Can be repeated.")
    ] = None,
    as_json: AsJson = False,
    data: Data = None,
) -> None:
    """Change the given settings of a workspace."""
    days = _given_or_removed("max-key-days", max_key_days, removed=no_max_key_days)
    cost = _given_or_removed("daily-max-cost-usd", daily_max_cost_usd, removed=no_daily_max_cost_usd)
    tokens = _given_or_removed("daily-max-tokens", daily_max_tokens, removed=no_daily_max_tokens)
    try:
        kept = convert(parse_retention(retention or []), SetRetention)
    except ValidationError as fault:
        raise CliError(f"--retention: {fault}") from fault
    if (name, days, owner, cost, tokens, kept) == (None, UNSET, None, UNSET, UNSET, SetRetention()):
        raise CliError("Nothing to change. Use --name, --max-key-days, --owner or another option of --help.")

    async def change(connection: Connection, settings: Settings) -> WorkspaceBody:
        await service.configure_workspace(
            connection,
            workspace,
            name=or_unset(name),
            max_key_days=days,
            owner_email=or_unset(owner),
            daily_max_cost_usd=cost,
            daily_max_tokens=tokens,
            retention=kept,
        )
        return await service.show_workspace(connection, workspace, settings.default_retention)

    changed = on_database(data, change)
    Result(changed, _workspace_text(changed)).print(as_json=as_json)


@app.command()
def show_workspace(workspace: Workspace, as_json: AsJson = False, data: Data = None) -> None:
    """Show a workspace."""
    found = on_database(
        data, lambda connection, settings: service.show_workspace(connection, workspace, settings.default_retention)
    )
    Result(found, _workspace_text(found)).print(as_json=as_json)


@app.command()
def list_workspaces(as_json: AsJson = False, data: Data = None) -> None:
    """List all workspaces, oldest first."""
    found = on_database(
        data, lambda connection, settings: service.all_workspaces(connection, settings.default_retention)
    )
    lines = [f"{one.id}  {one.owner.primary_email}  {one.name}" for one in found]
    Result({"items": found}, "\n".join(lines) or "No workspaces.").print(as_json=as_json)


@app.command()
def create_key(
    workspace: Workspace,
    label: Annotated[str, option("LABEL", "Label of the key.", parser=line)],
    permission: Permissions,
    expires_at: Annotated[datetime | None, option("TIME", "Expiration date. Default: never.", parser=date)] = None,
    as_email: Annotated[
        str | None, option("EMAIL", "Creator of the key. Default: the owner.", "--as", parser=email)
    ] = None,
    as_json: AsJson = False,
    data: Data = None,
) -> None:
    """Create an API key and print its secret. The secret is shown only once."""
    body = CreateApiKeyBody(label, permission, expires_at)
    created = on_database(
        data,
        lambda connection, settings: service.create_key(
            connection, settings.key.environment, workspace, body, as_email
        ),
    )
    Result(created, f"key {created.id}\nsecret {created.secret}").print(as_json=as_json)


@app.command()
def add_member(
    workspace: Workspace, email: Email, role: RoleOption = "member", as_json: AsJson = False, data: Data = None
) -> None:
    """Add a person, or change the role of a member."""
    user_id = on_database(data, lambda connection, _: members.add_by_operator(connection, workspace, email, Role(role)))
    Result({"user_id": user_id, "email": email, "role": role}, f"member {user_id}").print(as_json=as_json)


@app.command()
def invite(
    workspace: Workspace, email: Email, role: RoleOption = "member", as_json: AsJson = False, data: Data = None
) -> None:
    """Make a link with which a person joins a workspace."""
    created = on_database(
        data,
        lambda connection, settings: invitations.invite_by_operator(
            connection, settings.key, settings.sign_in, workspace, email, Role(role)
        ),
    )
    Result(created, _link_text(str(created.token))).print(as_json=as_json)


@app.command()
def sign_in_link(email: Email, as_json: AsJson = False, data: Data = None) -> None:
    """Make a link with which a person chooses a new password. Signs out their devices when it is used."""
    token = on_database(
        data,
        lambda connection, settings: invitations.account_link(connection, settings.key, settings.sign_in, email),
    )
    Result({"email": email, "token": token}, _link_text(token)).print(as_json=as_json)


@app.command()
def remove_member(
    workspace: Workspace,
    email: Email,
    as_json: AsJson = False,
    data: Data = None,
) -> None:
    """Remove a person from a workspace. Revokes and lists the keys that the person created."""
    keys = on_database(data, lambda connection, _: members.remove_by_operator(connection, workspace, email))
    lines = [f"{key.id}  {key.prefix}…  revoked  {key.label}" for key in keys]
    Result({"email": email, "keys": keys}, "\n".join(lines) or "This person created no keys.").print(as_json=as_json)


@app.command()
def list_members(workspace: Workspace, as_json: AsJson = False, data: Data = None) -> None:
    """List current and former members, oldest first."""
    found = on_database(data, lambda connection, _: members.all_members(connection, workspace))
    lines = [
        f"{one.user.user_id}  {'former' if one.ended_at else one.role}  {one.user.primary_email}"
        f"  {one.user.display_name or ''}".rstrip()
        for one in found
    ]
    Result({"items": found}, "\n".join(lines)).print(as_json=as_json)


@app.command()
def set_user(
    email: Email,
    display_name: Annotated[str | None, option("NAME", "Display name of the person.", parser=line)] = None,
    no_display_name: Annotated[bool, flag("--no-display-name", "Remove the display name.")] = False,
    as_json: AsJson = False,
    data: Data = None,
) -> None:
    """Set the display name of a person in all workspaces."""
    if (display_name is None) is not no_display_name:
        raise CliError("Use either --display-name or --no-display-name")
    user = on_database(data, lambda connection, _: profiles.name_by_operator(connection, email, display_name))
    Result(user, f"user {user.user_id}").print(as_json=as_json)


@app.command()
def reencrypt_secrets(as_json: AsJson = False, data: Data = None) -> None:
    """Encrypt all secrets with the first encryption key. Older keys can then be removed."""
    reencrypted = on_database(data, _reencrypt)
    Result({"reencrypted": reencrypted}, f"Re-encrypted {count_text(reencrypted, 'secret')}.").print(as_json=as_json)


@app.command()
def backup(
    file: BackupFile,
    encryption_keys: Annotated[
        bool,
        flag(
            "--encryption-keys/--no-encryption-keys",
            "Include the keys that encrypt the secrets of webhooks and credentials.",
        ),
    ] = True,
    as_json: AsJson = False,
    data: Data = None,
) -> None:
    """Back up the database, skills and files to one file. The server can keep running."""
    path, settings = Path(file), server_settings(data=data)
    # Keys in a setting are kept by whoever sets it.
    with_keys = encryption_keys and settings.encryption.keys is None
    key_file = settings.data_dir / KEY_FILE if with_keys else None
    with _backup_errors(), owner_url(settings) as url, progress_bar("Backing up") as progress:
        blobs = open_blob_store(settings.blob, settings.data_dir)
        made = write_backup(url, path, blobs, key_file, progress)
    file_bytes = path.stat().st_size
    text = f"Backed up {_counts_text(made)} to {file} ({size(file_bytes)})."
    warning = "The backup contains the keys that encrypt secrets. Store it safely, or use --no-encryption-keys."
    record = {"file": file, "bytes": file_bytes, **_counts(made)}
    Result(record, text, hint=None if made.keys is None else warning).print(as_json=as_json)


@app.command()
def restore(file: BackupFile, as_json: AsJson = False, data: Data = None) -> None:
    """Restore a backup into an empty data folder or database. Stop the server first."""
    settings = server_settings(data=data)
    with _backup_errors(), open_backup(Path(file)) as reader:
        with progress_bar("Checking") as progress:
            check_backup(reader, progress)
        with owner_url(settings, create=True) as url, progress_bar("Restoring") as progress:
            blobs = open_blob_store(settings.blob, settings.data_dir)
            restoring = Restore(reader, blobs, settings.data_dir / KEY_FILE, spool_folder(settings.data_dir))
            made = restoring.run(url, app_role(settings), settings.audit, progress)
    text = f"Restored {_counts_text(made)}, backed up at {date_text(made.created_at)} by release {made.release}."
    record = {"release": made.release, "created_at": made.created_at, **_counts(made)}
    Result(record, text).print(as_json=as_json)
    if missing := on_database(data, _missing_keys):
        note(missing)


@app.command()
def move_blobs(
    keep: Annotated[bool, flag("--keep", "Keep the blobs in the old store.")] = False,
    concurrency: Annotated[int, option("COUNT", "Number of parallel copies.", parser=whole_number(1, 64))] = 8,
    as_json: AsJson = False,
    data: Data = None,
) -> None:
    """Move skill archives and files to the blob store. The server can keep running."""
    settings = server_settings(data=data)
    if settings.blob.fallback_store_url is None:
        raise CliError(
            "Set QUARTERDECK_BLOB_FALLBACK_STORE_URL to the store to move from, for this command and the server."
        )
    new = open_blob_store(settings.blob, settings.data_dir)
    old = open_fallback_store(settings.blob.fallback_store_url)
    with migrated(settings) as url:
        try:
            moved = asyncio.run(_move(settings, url, old, new, keep=keep, concurrency=concurrency))
        except ServiceError as fault:
            reason = str(fault.__cause__ or fault.message).partition("\n")[0]
            raise CliError(
                f"A blob store or the database is unavailable. Run the command again to continue. {reason}"
            ) from fault
    lines = [
        f"{'Copied' if keep else 'Moved'} {moved.blobs:,} skill archives and files ({size(moved.bytes)})."
        f" {moved.present:,} were moved before."
    ]
    if moved.unknown:
        lines.append(f"{moved.unknown:,} objects of the fallback store are unknown to the database and were left.")
    lines += [f"Missing in both stores: {sha256}" for sha256 in moved.missing]
    lines += [f"Damaged, not moved: {sha256}" for sha256 in moved.damaged]
    exit_code = ExitCode.UNSUCCESSFUL if moved.missing or moved.damaged else 0
    Result(moved, "\n".join(lines), exit_code=exit_code).print(as_json=as_json)


@contextmanager
def _backup_errors() -> Iterator[None]:
    try:
        yield
    except BackupError as error:
        raise CliError(str(error)) from error


def _counts(made: BackupManifest) -> dict[str, Any]:
    return {"rows": made.rows, "blobs": len(made.blobs), "encryption_keys": made.keys is not None}


def _counts_text(made: BackupManifest) -> str:
    return f"{made.rows:,} rows and {len(made.blobs):,} skill archives and files"


async def _move(settings: Settings, url: str, old: BlobStore, new: BlobStore, *, keep: bool, concurrency: int) -> Moved:
    spool = spool_folder(settings.data_dir)
    if await are_same(new, old, spool):
        raise CliError("QUARTERDECK_BLOB_STORE_URL and QUARTERDECK_BLOB_FALLBACK_STORE_URL name the same store.")
    database = Database(url, settings.database)
    await database.open()
    try:
        with progress_bar("Moving") as progress:
            return await Move(database, old, new, spool, keep=keep).run(concurrency, progress)
    finally:
        await database.close()


async def _reencrypt(connection: Connection, settings: Settings, *, try_only: bool = False) -> int:
    cipher = SecretCipher(settings.encryption, settings.data_dir)
    async with connection.transaction(force_rollback=try_only):
        reencrypted = await webhooks.reencrypt_webhooks(connection, cipher)
        return reencrypted + await credentials.reencrypt_credentials(connection, cipher)


async def _missing_keys(connection: Connection, settings: Settings) -> str | None:
    """What is missing to decrypt the stored secrets, and where it belongs."""
    try:
        await _reencrypt(connection, settings, try_only=True)
    except ServiceError as error:
        if settings.encryption.keys is not None:
            return f"{error} Add it to QUARTERDECK_ENCRYPTION_KEYS."
        return f"{error} Copy {KEY_FILE} to {settings.data_dir} or set QUARTERDECK_ENCRYPTION_KEYS."
    return None


def _given_or_removed(option: str, given: T | None, *, removed: bool) -> T | UnsetType | None:
    check_either(f"--{option}", given, f"--no-{option}", removed)
    return None if removed else or_unset(given)


def _link_text(token: str) -> str:
    """The server's public address is not known here."""
    return f"token {token}\nOpen the console of the server at this address: /#/invitation?token={token}"


def _workspace_text(workspace: WorkspaceBody) -> str:
    days, day = workspace.max_key_days, workspace.limits.day
    kept = ", ".join(f"{KINDS[kind]}={days}" for kind, days in workspace.retention.set_days().items())
    return (
        f"workspace {workspace.id}\nname {workspace.name}\nowner {workspace.owner.primary_email}\n"
        f"maximum key lifetime {'none' if days is None else f'{days} days'}\n"
        f"maximum cost per day {'none' if day.max_cost_usd is None else f'${day.max_cost_usd:,.2f}'}\n"
        f"maximum tokens per day {'none' if day.max_tokens is None else f'{day.max_tokens:,}'}\n"
        f"retention {kept or 'default'}"
    )

"""`qd serve`, `api`, `worker`, `migrate` and `sweep`."""

import asyncio
import ipaddress
import os
import shutil
import sys
from functools import partial
from typing import Annotated

import typer
from msgspec.structs import asdict
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict

from quarterdeck.app import load_app
from quarterdeck.blobs.blob_store import open_blob_store
from quarterdeck.cli.database import app_role, app_url, migrated, owner_url, server_settings, session_url
from quarterdeck.cli.errors import ExitCode
from quarterdeck.cli.options import flag, option, whole_number
from quarterdeck.connections.mcp.model import CommandsError, read_commands
from quarterdeck.core.settings import Settings, SettingsError, variable
from quarterdeck.core.trace_export import check_tracing
from quarterdeck.db.database import Database, connection_options
from quarterdeck.db.migrate import migrate as migrate_database
from quarterdeck.db.migrate import pending_changes
from quarterdeck.db.roles import AppRole, privileges
from quarterdeck.openid.model import ProvidersError
from quarterdeck.openid.providers import read_providers
from quarterdeck.retention import Deleted, delete_expired
from quarterdeck.sandbox.choice import find_sandbox
from quarterdeck.sandbox.model import SandboxUnavailable
from quarterdeck.server import lifeline
from quarterdeck.server.address import AddressError, address_text
from quarterdeck.server.api_server import serve_api
from quarterdeck.server.connections import check_connections, demand_of, demand_of_everything
from quarterdeck.server.metrics_port import metrics_port
from quarterdeck.server.supervisor import EXIT_ADDRESS, supervise
from quarterdeck.workspaces.service import FirstStart, first_start

_UP_TO_DATE = "The schema is up to date."


def serve_everything(settings: Settings) -> int:
    _check_redis_url(settings)
    _check_mcp_commands(settings)
    _check_openid_providers(settings)
    _check_sandbox(settings)
    check_tracing(os.environ)
    _warn_if_public(settings.server.host)
    started: list[FirstStart] = []
    try:
        return supervise(settings, partial(_prepare, settings, started), announce=partial(_announce, started))
    finally:
        # The start was interrupted. The key is stored already, and cannot be shown again.
        _welcome(started, address_text(settings.server.host, settings.server.port))


def serve_api_alone(settings: Settings) -> int:
    _check_redis_url(settings)
    _check_mcp_commands(settings)
    _check_openid_providers(settings)
    check_tracing(os.environ)
    _check_database(settings, api_processes=settings.server.processes)
    _warn_if_public(settings.server.host)
    return serve_api(settings, settings.server.host, settings.server.port, partial(load_app, settings))


def run_worker_alone(settings: Settings) -> int:
    _check_mcp_commands(settings)
    database_url = _check_database(settings, workers=1)
    # Imported here because it is large and API processes do not need it.
    from quarterdeck.worker.process import run_worker

    lifeline.watch()
    try:
        with metrics_port(settings, database_url):
            return run_worker(settings)
    except AddressError as fault:
        sys.stderr.write(f"{fault}\n")
        return EXIT_ADDRESS
    except SandboxUnavailable as fault:
        raise _sandbox_error(fault) from fault


def _check_database(settings: Settings, *, api_processes: int = 0, workers: int = 0) -> str:
    """Returns the URL of the database."""
    url, direct_url = settings.database.url, settings.database.session_url
    if url is None or direct_url is None:
        raise SettingsError("QUARTERDECK_DATABASE_URL is not set. `qd serve` starts a database of its own.")
    conninfo_to_dict(url)
    # `qd serve` has checked all its processes together.
    if not lifeline.is_supervised():
        check_connections(direct_url, settings, demand_of(settings, api_processes=api_processes, workers=workers))
    return url


def _check_sandbox(settings: Settings) -> None:
    """Here, because workers that end at their start would be started again and again."""
    if settings.sandbox.kind == "auto":
        return
    try:
        asyncio.run(find_sandbox(settings.sandbox, settings.data_dir))
    except SandboxUnavailable as fault:
        raise _sandbox_error(fault) from fault


def _sandbox_error(fault: SandboxUnavailable) -> SettingsError:
    return SettingsError(f"{variable('sandbox', 'kind')}: {fault} (docs/run/sandbox.md)")


def _check_mcp_commands(settings: Settings) -> None:
    try:
        read_commands(settings.mcp.commands_file)
    except CommandsError as fault:
        raise SettingsError(
            f"{variable('mcp', 'commands_file')}: {' '.join(str(fault).split())} (docs/use/mcp.md)"
        ) from fault


def _check_openid_providers(settings: Settings) -> None:
    try:
        read_providers(settings.oidc)
    except ProvidersError as fault:
        raise SettingsError(f"OpenID providers: {' '.join(str(fault).split())} (docs/run/openid.md)") from fault


def _check_redis_url(settings: Settings) -> None:
    """Separate from the other settings, because their error messages quote the value and this may hold a password."""
    if settings.limit.redis_url is None:
        return
    from quarterdeck.auth.redis_rate_limits import is_redis_url

    if not is_redis_url(settings.limit.redis_url):
        raise SettingsError("QUARTERDECK_LIMIT_REDIS_URL is not a redis://, rediss:// or unix:// URL")


def _prepare(settings: Settings, started: list[FirstStart], owner_url: str) -> str:
    """Adds the first key to `started`, if this is the first start."""
    check_connections(settings.database.session_url or owner_url, settings, demand_of_everything(settings))
    migrate_database(owner_url, app_role(settings), settings.audit)

    async def begin() -> FirstStart | None:
        options = connection_options(settings.database)
        async with await AsyncConnection.connect(session_url(settings), autocommit=True, options=options) as connection:
            return await first_start(connection, settings.key, settings.sign_in)

    first = asyncio.run(begin())
    if first is not None:
        started.append(first)
    return app_url(settings)


def _welcome(started: list[FirstStart], address: str) -> None:
    """Once, and as late as possible: nothing must push the key out of the terminal."""
    if not started:
        return
    first, url = started.pop(), f"http://{address}"
    _say(
        f"""
Welcome to Quarterdeck. Save this key: it is shown only once.

  export QD_URL={url}
  export QD_WORKSPACE={first.workspace_id}
  export QD_KEY={first.secret}

Paste these lines into another terminal, in this folder, and chat with an agent:

  {_command()} chat

Or open this link in a browser, which works once, and choose a password:

  {url}/#/invitation?token={first.invitation}

Or create a session over HTTP:

  curl -s $QD_URL/v1/sessions -H "Authorization: Bearer $QD_KEY" \\
    -H 'Content-Type: application/json' -d '{{"title": "First session"}}'

"""
    )


def _command() -> str:
    """How to call `qd` from the current folder."""
    started = os.path.abspath(sys.argv[0])
    if os.path.basename(started) != "qd" or shutil.which("qd") == started:
        return "qd"
    return os.path.relpath(started)


def _announce(started: list[FirstStart], address: str) -> None:
    _welcome(started, address)
    _say(f"Serving on http://{address} (API reference: http://{address}/docs). Press Ctrl-C to stop.\n")


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _warn_if_public(host: str) -> None:
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    if not loopback:
        sys.stderr.write(f"qd: warning: {host} is reachable by others and not encrypted. Put a TLS proxy in front.\n")


Host = Annotated[str | None, option("ADDRESS", "Address to listen on. Default: 127.0.0.1.")]
PortNumber = Annotated[int | None, option("PORT", "Port to listen on. Default: 8700.", parser=whole_number(0, 65535))]
DataDir = Annotated[str | None, option("DIR", "Data folder. Default: ./data.")]


def serve(host: Host = None, port: PortNumber = None, data: DataDir = None) -> None:
    """Run the API, a worker and a database (unless QUARTERDECK_DATABASE_URL is set)."""
    raise typer.Exit(serve_everything(server_settings(host=host, port=port, data=data)))


def api(host: Host = None, port: PortNumber = None, data: DataDir = None) -> None:
    """Run only the API, on the database of QUARTERDECK_DATABASE_URL."""
    raise typer.Exit(serve_api_alone(server_settings(host=host, port=port, data=data)))


def worker(data: DataDir = None) -> None:
    """Run only a worker, on the database of QUARTERDECK_DATABASE_URL."""
    raise typer.Exit(run_worker_alone(server_settings(data=data)))


def migrate(
    check: Annotated[
        bool, flag("--check", "Change nothing. Exit code 0: up to date, 1: migrations pending, 2: error.")
    ] = False,
    data: DataDir = None,
) -> None:
    """Migrate the database to the schema of this release."""
    settings = server_settings(data=data)
    if not check:
        _migrate(settings)
        return
    # Nothing is changed, not even a password file of the embedded PostgreSQL.
    with owner_url(settings) as url:
        pending = pending_changes(url, AppRole(settings.database.role), settings.audit)
    typer.echo(f"Pending: {', '.join(pending)}" if pending else _UP_TO_DATE)
    raise typer.Exit(ExitCode.UNSUCCESSFUL if pending else 0)


def _migrate(settings: Settings) -> None:
    """Also stores the retention of the audit log, if it is set. Other commands do not change it."""
    with owner_url(settings, create=True) as url:
        role = app_role(settings)
        before = privileges(url, role)
        applied = migrate_database(url, role, settings.audit)
        after = privileges(url, role)
    typer.echo(f"Applied: {', '.join(applied)}" if applied else _UP_TO_DATE)
    if added := len(after - before):
        # Without a migration they were missing, for example after a dump was restored without privileges.
        typer.echo(f"{'Granted' if applied else 'Restored'} {added} privileges of the role {role.name}.")
    if removed := len(before - after):
        typer.echo(f"Revoked {removed} privileges of the role {role.name} that this release does not need.")


def sweep(data: DataDir = None) -> None:
    """Delete expired data now. A running server does this every hour."""
    settings = server_settings(data=data)

    async def delete(url: str) -> Deleted:
        database = Database(url, settings.database)
        await database.open()
        try:
            return await delete_expired(database, open_blob_store(settings.blob, settings.data_dir), settings)
        finally:
            await database.close()

    with migrated(settings) as url:
        deleted = asyncio.run(delete(url))
    counts = (f"{count} {name.replace('_', ' ')}" for name, count in asdict(deleted).items())
    typer.echo(f"Deleted {', '.join(counts)}")

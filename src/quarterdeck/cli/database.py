"""What the commands for operators work with: settings with the options of the command line, and the database, by URL or
in the embedded PostgreSQL of the data folder, which is started if needed. Migrations run as the owner, everything else
as the application role."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TypeVar

import msgspec
from psycopg import AsyncConnection

from quarterdeck.cli.errors import CliError
from quarterdeck.cli.output import note
from quarterdeck.core.settings import PREFIX, ServerSettings, Settings, SettingsError, read_settings, variables
from quarterdeck.db.database import Connection, connection_options
from quarterdeck.db.migrate import migrate
from quarterdeck.db.roles import AppRole
from quarterdeck.server import embedded_postgres
from quarterdeck.server.connections import embedded_max_connections

T = TypeVar("T")

# Used between our own processes, and by the tests.
_OTHER_VARIABLES = (f"{PREFIX}_LIFELINE_", f"{PREFIX}_TEST_")
# Set by `qd serve` for the processes that it starts. It has warned already.
_LIFELINE = "QUARTERDECK_LIFELINE_FD"


def server_settings(*, host: str | None = None, port: int | None = None, data: str | None = None) -> Settings:
    if _LIFELINE not in os.environ:
        _warn_about_unknown_variables()
    return with_server(read_settings(os.environ), host=host, port=port, data_dir=data)


def _warn_about_unknown_variables() -> None:
    for name, nearest in _unknown_variables(os.environ).items():
        hint = f"Did you mean {nearest}?" if nearest else "docs/run/configuration.md lists all settings."
        note(f"qd: warning: unknown variable {name}. {hint}")


def _unknown_variables(environ: Mapping[str, str]) -> dict[str, str | None]:
    """Variables that look like settings and are none, each with the nearest name of a setting."""
    # Without the prefix, which would make all names similar.
    known = [name.removeprefix(PREFIX) for name in variables()]
    found = {name: name.removeprefix(PREFIX) for name in sorted(environ) if name.startswith(f"{PREFIX}_")}
    nearest = {
        name: get_close_matches(rest, known, n=1)
        for name, rest in found.items()
        if rest not in known and not name.startswith(_OTHER_VARIABLES)
    }
    return {name: PREFIX + matches[0] if matches else None for name, matches in nearest.items()}


def with_server(settings: Settings, **given: object) -> Settings:
    """The settings with options of the command line in place of values from the environment."""
    values = {name: value for name, value in given.items() if value is not None}
    try:
        server = msgspec.convert(msgspec.to_builtins(settings.server) | values, ServerSettings)
    except msgspec.ValidationError as fault:
        raise SettingsError(str(fault)) from None
    return msgspec.structs.replace(settings, server=server)


def app_role(settings: Settings) -> AppRole:
    if settings.database.url is not None:
        return AppRole(settings.database.role)
    return AppRole(settings.database.role, embedded_postgres.app_password(settings.data_dir))


def app_url(settings: Settings) -> str:
    """The URL for API and workers. In the embedded PostgreSQL the application role logs in directly, so that it cannot
    switch to the owner."""
    return settings.database.url or embedded_postgres.app_url(settings.data_dir, settings.database.role)


def session_url(settings: Settings) -> str:
    """The same login at PostgreSQL itself, also if API and workers use a pooler."""
    return settings.database.session_url or app_url(settings)


@contextmanager
def owner_url(settings: Settings, *, create: bool = False) -> Iterator[str]:
    """Without `create`, a data folder that has no database is refused: the command may have been started in the wrong
    folder."""
    if settings.database.session_url is not None:
        yield settings.database.owner_url or settings.database.session_url
        return
    if not embedded_postgres.exists(settings.data_dir):
        if not create:
            raise CliError(
                f"No database in {settings.data_dir}. Choose the data folder with --data DIR, set"
                " QUARTERDECK_DATABASE_URL, or create a database with `qd serve` or `qd migrate`."
            )
        note(f"Creating a new database in {settings.data_dir}.")
    with embedded_postgres.running(settings.data_dir, embedded_max_connections(settings)) as url:
        yield url


@contextmanager
def migrated(settings: Settings) -> Iterator[str]:
    """Migrates the database. Yields its URL for the application role."""
    with owner_url(settings) as url:
        migrate(url, app_role(settings))
        yield session_url(settings)


def on_database(data: str | None, work: Callable[[Connection, Settings], Awaitable[T]]) -> T:
    """Run `work` on a connection to the migrated database. `data` is the data folder, if it was given."""
    settings = server_settings(data=data)

    async def connected(url: str) -> T:
        options = connection_options(settings.database)
        async with await AsyncConnection.connect(url, autocommit=True, options=options) as connection:
            return await work(connection, settings)

    with migrated(settings) as url:
        return asyncio.run(connected(url))

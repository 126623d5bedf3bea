"""`qd serve` and `qd api`."""

import asyncio
import ipaddress
import sys
from functools import partial

from psycopg import AsyncConnection

from quarterdeck.app import load_app
from quarterdeck.db.database import connection_options
from quarterdeck.db.migrate import migrate
from quarterdeck.processes.api_server import serve_api
from quarterdeck.processes.supervisor import supervise
from quarterdeck.settings import Settings, SettingsError
from quarterdeck.workspaces.service import FirstStart, first_start


def serve_everything(settings: Settings) -> int:
    _warn_if_public(settings.server.host)
    return supervise(settings, partial(_prepare, settings))


def serve_api_alone(settings: Settings) -> int:
    if settings.database.url is None:
        raise SettingsError("QUARTERDECK_DATABASE_URL is not set; `qd serve` brings a database of its own")
    _warn_if_public(settings.server.host)
    return serve_api(settings, settings.server.host, settings.server.port, partial(load_app, settings))


def _prepare(settings: Settings, url: str) -> None:
    migrate(url)

    async def begin() -> FirstStart | None:
        options = connection_options(settings.database)
        async with await AsyncConnection.connect(url, autocommit=True, options=options) as connection:
            return await first_start(connection, settings.key.environment)

    first = asyncio.run(begin())
    if first is not None:
        _welcome(first, f"http://{settings.server.host}:{settings.server.port}")


def _welcome(first: FirstStart, url: str) -> None:
    sys.stdout.write(
        f"""
Quarterdeck is ready for its first conversation.

  workspace  {first.workspace_id}
  key        {first.secret}

The key is shown only this once. Try it:

  curl -s {url}/v1/sessions -H 'Authorization: Bearer {first.secret}' \\
    -H 'Content-Type: application/json' -d '{{"title": "First session"}}'

"""
    )
    sys.stdout.flush()


def _warn_if_public(host: str) -> None:
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    if not loopback:
        sys.stderr.write(
            f"qd: warning: serving on {host}, which others can reach, without encryption: put a TLS proxy in front\n"
        )

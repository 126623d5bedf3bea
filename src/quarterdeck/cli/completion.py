"""Shell completion of IDs, names and fixed values. Those of the server take a request or two, and are left out if that
fails or takes long."""

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any
from uuid import UUID

import typer

from quarterdeck.cli import find
from quarterdeck.cli.connection import client_for, connect
from quarterdeck.cli.find import Listing, prefix_range, session_id
from quarterdeck.cli.output import cell
from quarterdeck.client import Client

# Value and description. bash shows values only.
Completions = list[tuple[str, str]]
Complete = Callable[[typer.Context, str], Completions]

_MAX_ITEMS = 100
# Shells evaluate completions: zsh would execute a `\$(command)` in another user's title.
_UNSAFE = re.compile(r"[^\w .,/@#%+=-]")
_SAFE_NAME = re.compile(r"[\w.@-]+")
_SAFE_PATH = re.compile(r"[\w.@/-]+")


def _of_server(fetch: Callable[[Client, typer.Context, str], Completions]) -> Complete:
    """Makes a completion of a function that asks the server. It is called with what is typed so far."""

    def complete(ctx: typer.Context, incomplete: str) -> Completions:
        # A message would end up in the command line of the user.
        with suppress(Exception), client_for(connect(ctx.params.get("profile")), is_hurried=True) as client:
            found = [each for each in fetch(client, ctx, incomplete) if each[0].startswith(incomplete)]
            return [(value, cell(_UNSAFE.sub(" ", name))) for value, name in found]
        return []

    return complete


def _items(listing: Listing, is_offered: Callable[[Any], bool] = lambda item: True) -> Complete:
    """IDs, with names as descriptions."""

    def fetch(client: Client, ctx: typer.Context, incomplete: str) -> Completions:
        items = listing.page(client, limit=_MAX_ITEMS).items
        return [(str(one.id), listing.names(one)[0] or "") for one in items if is_offered(one)]

    return _of_server(fetch)


def _names(listing: Listing) -> Complete:
    """Names, and the IDs once something is typed."""

    def fetch(client: Client, ctx: typer.Context, incomplete: str) -> Completions:
        items = [(str(one.id), one.name) for one in listing.page(client, limit=_MAX_ITEMS).items]
        names = [(name, identifier) for identifier, name in items if _SAFE_NAME.fullmatch(name)]
        return names + (items if incomplete else [])

    return _of_server(fetch)


skills = _names(find.SKILLS[0])
agents = _names(find.AGENTS[0])
mcp_servers = _names(find.MCP_SERVERS)
credentials = _names(find.CREDENTIALS)
keys = _items(find.KEYS, lambda key: key.revoked_at is None)
webhooks = _items(find.WEBHOOKS)
trusted_jobs = _items(find.TRUSTED_JOBS)
workspaces = _names(find.WORKSPACES)
members = _items(find.MEMBERS)
invitations = _items(find.INVITATIONS)
devices = _items(find.DEVICES)


@_of_server
def sessions(client: Client, ctx: typer.Context, incomplete: str) -> Completions:
    wanted = prefix_range(incomplete)
    if wanted is None or wanted.low.int == 0:
        found = client.list_sessions(limit=_MAX_ITEMS).items
    else:
        found = client.list_sessions(limit=_MAX_ITEMS, after=UUID(int=wanted.low.int - 1), order="asc").items
    return [(str(one.id), one.title or "") for one in found]


@_of_server
def runs(client: Client, ctx: typer.Context, incomplete: str) -> Completions:
    """Active runs, because only those are in the list of sessions."""
    found = client.list_sessions(limit=_MAX_ITEMS).items
    return [(str(one.active_run.id), one.title or "") for one in found if one.active_run is not None]


@_of_server
def retryable_runs(client: Client, ctx: typer.Context, incomplete: str) -> Completions:
    """The newest run of each session, if it can be retried."""
    found = [(one.last_run, one.title or "") for one in client.list_sessions(limit=_MAX_ITEMS).items]
    return [(str(run.id), title) for run, title in found if run is not None and run.state in ("failed", "cancelled")]


@_of_server
def actions(client: Client, ctx: typer.Context, incomplete: str) -> Completions:
    """Open actions."""
    found = client.list_actions(state="open", limit=_MAX_ITEMS).items
    return [(str(one.id), f"{one.kind} {one.tool or ''}".rstrip()) for one in found]


@_of_server
def tokens(client: Client, ctx: typer.Context, incomplete: str) -> Completions:
    """Active tokens of the session that the command names."""
    found = client.list_session_tokens(session_id(client, ctx.params["session_id"]), limit=_MAX_ITEMS).items
    return [(str(one.id), one.prefix) for one in found if one.revoked_at is None]


@_of_server
def session_files(client: Client, ctx: typer.Context, incomplete: str) -> Completions:
    """Files of the session that the command names."""
    session = session_id(client, ctx.params["session_id"])
    found = client.list_session_files(session, prefix=incomplete, limit=_MAX_ITEMS).items
    return [(one.path, "") for one in found if one.kind == "file" and _SAFE_PATH.fullmatch(one.path)]


@_of_server
def models(client: Client, ctx: typer.Context, incomplete: str) -> Completions:
    return [(one.model, "") for one in client.list_models().items]


def one_of(values: Iterable[str]) -> Callable[[str], list[str]]:
    """Fixed values of an option."""

    def complete(incomplete: str) -> list[str]:
        return [str(value) for value in values if value.startswith(incomplete)]

    return complete

"""Shell completion of IDs, names and fixed values. Those of the server take a request or two, and are left out if that
fails or takes long."""

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import UUID

import typer

if TYPE_CHECKING:
    from quarterdeck.client import Client

# Value and description. bash shows values only.
Completions = list[tuple[str, str]]

_MAX_ITEMS = 100
# Shells evaluate completions: zsh would execute a `\$(command)` in another user's title.
_UNSAFE = re.compile(r"[^\w .,/@#%+=-]")
_SAFE_NAME = re.compile(r"[\w.@-]+")
_SAFE_PATH = re.compile(r"[\w.@/-]+")


def sessions(ctx: typer.Context, incomplete: str) -> Completions:
    def fetch(client: "Client") -> Completions:
        if (start := _before(incomplete)) is not None:
            found = client.list_sessions(limit=_MAX_ITEMS, after=start, order="asc").items
        else:
            found = client.list_sessions(limit=_MAX_ITEMS).items
        return _ids((one.id, one.title or "") for one in found)

    return _complete(ctx, incomplete, fetch)


def runs(ctx: typer.Context, incomplete: str) -> Completions:
    """Active runs, because only those are in the list of sessions."""

    def fetch(client: "Client") -> Completions:
        found = client.list_sessions(limit=_MAX_ITEMS).items
        return _ids((one.active_run.id, one.title or "") for one in found if one.active_run is not None)

    return _complete(ctx, incomplete, fetch)


def retryable_runs(ctx: typer.Context, incomplete: str) -> Completions:
    """The newest run of each session, if it can be retried."""

    def fetch(client: "Client") -> Completions:
        found = client.list_sessions(limit=_MAX_ITEMS).items
        last = [(one.last_run, one.title or "") for one in found]
        return _ids((run.id, title) for run, title in last if run is not None and run.state in ("failed", "cancelled"))

    return _complete(ctx, incomplete, fetch)


def actions(ctx: typer.Context, incomplete: str) -> Completions:
    """Open actions."""

    def fetch(client: "Client") -> Completions:
        found = client.list_actions(state="open", limit=_MAX_ITEMS).items
        return _ids((one.id, " ".join(filter(None, (one.kind.value, one.tool)))) for one in found)

    return _complete(ctx, incomplete, fetch)


def skills(ctx: typer.Context, incomplete: str) -> Completions:
    def fetch(client: "Client") -> Completions:
        return _names(((one.id, one.name) for one in client.list_skills(limit=_MAX_ITEMS).items), incomplete)

    return _complete(ctx, incomplete, fetch)


def agents(ctx: typer.Context, incomplete: str) -> Completions:
    def fetch(client: "Client") -> Completions:
        return _names(((one.id, one.name) for one in client.list_agents(limit=_MAX_ITEMS).items), incomplete)

    return _complete(ctx, incomplete, fetch)


def mcp_servers(ctx: typer.Context, incomplete: str) -> Completions:
    def fetch(client: "Client") -> Completions:
        return _names(((one.id, one.name) for one in client.list_mcp_servers(limit=_MAX_ITEMS).items), incomplete)

    return _complete(ctx, incomplete, fetch)


def credentials(ctx: typer.Context, incomplete: str) -> Completions:
    def fetch(client: "Client") -> Completions:
        return _names(((one.id, one.name) for one in client.list_credentials(limit=_MAX_ITEMS).items), incomplete)

    return _complete(ctx, incomplete, fetch)


def keys(ctx: typer.Context, incomplete: str) -> Completions:
    def fetch(client: "Client") -> Completions:
        workspace_id = client.whoami().workspace_id
        found = client.list_api_keys(workspace_id=workspace_id, limit=_MAX_ITEMS).items
        return _ids((one.id, one.label) for one in found if one.revoked_at is None)

    return _complete(ctx, incomplete, fetch)


def webhooks(ctx: typer.Context, incomplete: str) -> Completions:
    def fetch(client: "Client") -> Completions:
        found = client.list_webhooks(limit=_MAX_ITEMS).items
        return _ids((one.id, one.description or one.url) for one in found)

    return _complete(ctx, incomplete, fetch)


def tokens(ctx: typer.Context, incomplete: str) -> Completions:
    """Active tokens of the session that the command names."""
    from quarterdeck.cli.find import session_id

    def fetch(client: "Client") -> Completions:
        found = client.list_session_tokens(session_id(client, ctx.params["session_id"]), limit=_MAX_ITEMS).items
        return _ids((one.id, one.prefix) for one in found if one.revoked_at is None)

    return _complete(ctx, incomplete, fetch)


def session_files(ctx: typer.Context, incomplete: str) -> Completions:
    """Files of the session that the command names."""
    from quarterdeck.cli.find import session_id

    def fetch(client: "Client") -> Completions:
        session = session_id(client, ctx.params["session_id"])
        found = client.list_session_files(session, prefix=incomplete, limit=_MAX_ITEMS).items
        return [(one.path, "") for one in found if one.kind == "file" and _SAFE_PATH.fullmatch(one.path)]

    return _complete(ctx, incomplete, fetch)


def models(ctx: typer.Context, incomplete: str) -> Completions:
    return _complete(ctx, incomplete, lambda client: [(one.model, "") for one in client.list_models().items])


def one_of(values: Iterable[str]) -> Callable[[str], list[str]]:
    """Fixed values of an option."""

    def complete(incomplete: str) -> list[str]:
        return [value for value in values if value.startswith(incomplete)]

    return complete


def _ids(found: Iterable[tuple[UUID, str]]) -> Completions:
    return [(str(identifier), name) for identifier, name in found]


def _names(found: Iterable[tuple[UUID, str]], incomplete: str) -> Completions:
    """Names, and the IDs once something is typed."""
    items = list(found)
    names = [(name, str(identifier)) for identifier, name in items if _SAFE_NAME.fullmatch(name)]
    return names + (_ids(items) if incomplete else [])


def _before(incomplete: str) -> UUID | None:
    """A cursor before all IDs that begin with this text. None if it is no beginning of an ID."""
    from quarterdeck.cli.find import prefix_range

    wanted = prefix_range(incomplete)
    return None if wanted is None or wanted.low.int == 0 else UUID(int=wanted.low.int - 1)


def _complete(ctx: Any, incomplete: str, fetch: "Callable[[Client], Completions]") -> Completions:
    from quarterdeck.cli.connection import client_for, connect

    # A message would end up in the command line of the user.
    with suppress(Exception), client_for(connect(ctx.params.get("profile")), is_hurried=True) as client:
        return [(value, _description(name)) for value, name in fetch(client) if value.startswith(incomplete)]
    return []


def _description(name: str) -> str:
    from quarterdeck.cli.output import cell

    return cell(_UNSAFE.sub(" ", name))

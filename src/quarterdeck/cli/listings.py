"""The lists in which `find.py` looks up objects, with the names of their items."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar
from unicodedata import normalize
from uuid import UUID

from msgspec import Struct

if TYPE_CHECKING:
    from quarterdeck.client import Client
    from quarterdeck.client.calls import Page
    from quarterdeck.core.actors import ActorBody

Order = Literal["asc", "desc"]


class Identified(Protocol):
    @property
    def id(self) -> UUID: ...


Item = TypeVar("Item", bound=Identified)


class Listing(Struct, Generic[Item], frozen=True):
    noun: str
    # Called with limit, after and order.
    page: "Callable[[int, UUID | None, Order], Page[Item]]"
    name: Callable[[Item], str | None]
    # Like `page`, with only the items whose name may be the given one. None: `page` is read to its end.
    named: "Callable[[int, UUID | None, Order], Page[Item]] | None" = None
    other_name: Callable[[Item], str | None] = lambda item: None
    has_any_cursor: bool = False

    def has_name(self, item: Item, wanted: str) -> bool:
        names = (self.name(item), self.other_name(item))
        return _folded(wanted) in (_folded(name) for name in names if name is not None)


class User(Struct, frozen=True):
    id: UUID
    actor: "ActorBody"


class Users(Struct, frozen=True):
    items: list[User]
    next_cursor: UUID | None


def sessions(client: "Client", given: str) -> tuple[Listing[Any], ...]:
    def listing(*, archived: bool) -> Listing[Any]:
        return Listing(
            "session",
            lambda limit, after, order: client.list_sessions(archived=archived, limit=limit, after=after, order=order),
            lambda session: session.title,
            lambda limit, after, order: client.list_sessions(
                archived=archived, search=given, limit=limit, after=after, order=order
            ),
            has_any_cursor=True,
        )

    return listing(archived=False), listing(archived=True)


def skills(client: "Client") -> tuple[Listing[Any], ...]:
    def listing(*, archived: bool) -> Listing[Any]:
        return Listing(
            "skill",
            lambda limit, after, order: client.list_skills(archived=archived, limit=limit, after=after, order=order),
            skill_name,
        )

    return listing(archived=False), listing(archived=True)


def agents(client: "Client") -> tuple[Listing[Any], ...]:
    def listing(*, archived: bool) -> Listing[Any]:
        return Listing(
            "agent",
            lambda limit, after, order: client.list_agents(archived=archived, limit=limit, after=after, order=order),
            lambda agent: agent.name,
        )

    return listing(archived=False), listing(archived=True)


def mcp_servers(client: "Client") -> Listing[Any]:
    return Listing(
        "MCP server",
        lambda limit, after, order: client.list_mcp_servers(limit=limit, after=after, order=order),
        lambda server: server.name,
    )


def credentials(client: "Client") -> Listing[Any]:
    return Listing(
        "credential",
        lambda limit, after, order: client.list_credentials(limit=limit, after=after, order=order),
        lambda credential: credential.name,
    )


def keys(client: "Client", workspace_id: UUID | str) -> Listing[Any]:
    return Listing(
        "API key",
        lambda limit, after, order: client.list_api_keys(
            workspace_id=workspace_id, limit=limit, after=after, order=order
        ),
        lambda key: key.label,
    )


def webhooks(client: "Client") -> Listing[Any]:
    return Listing(
        "webhook",
        lambda limit, after, order: client.list_webhooks(limit=limit, after=after, order=order),
        lambda webhook: webhook.description or webhook.url,
        other_name=lambda webhook: webhook.url,
        has_any_cursor=True,
    )


def deliveries(client: "Client", webhook: UUID) -> Listing[Any]:
    return Listing(
        "delivery",
        lambda limit, after, order: client.list_webhook_deliveries(webhook, limit=limit, after=after, order=order),
        lambda delivery: None,
        has_any_cursor=True,
    )


def tokens(client: "Client", session: UUID) -> Listing[Any]:
    return Listing(
        "token",
        lambda limit, after, order: client.list_session_tokens(session, limit=limit, after=after, order=order),
        lambda token: token.prefix,
    )


def runs(client: "Client", session: UUID) -> Listing[Any]:
    return Listing(
        "run",
        lambda limit, after, order: client.list_session_runs(session, limit=limit, after=after, order=order),
        run_name,
    )


def actions(client: "Client") -> Listing[Any]:
    return Listing(
        "action",
        lambda limit, after, order: client.list_actions(limit=limit, after=after, order=order),
        lambda action: None,
        has_any_cursor=True,
    )


def skill_name(found: Any) -> str:
    return str(found.name)


def run_name(run: Any) -> None:
    return None


def _folded(name: str) -> str:
    """Names are found in any case and in the spellings that the server takes for the same."""
    return " ".join(normalize("NFC", name).split()).casefold()


def users(client: "Client") -> Listing[Any]:
    def page(limit: int, after: UUID | None, order: Order) -> Users:
        found = client.list_members(limit=limit, after=after, order=order)
        return Users([User(one.user.user_id, one.user) for one in found.items], found.next_cursor)

    return Listing(
        "user",
        page,
        lambda found: found.actor.primary_email or found.actor.display_name,
        other_name=lambda found: found.actor.display_name,
    )

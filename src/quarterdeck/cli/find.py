"""Finds the object that a command names: by ID, by the beginning of an ID, or by name. A full ID costs no request.

IDs are UUIDv7 and lists are ordered by ID, so all objects whose ID begins with a prefix are neighbours. Lists that
accept any ID as cursor are asked for that range only. The others are read from the newest on, up to a limit.
"""

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar
from uuid import UUID

from msgspec import Struct

from quarterdeck.cli.exit_codes import CliError, ExitCode
from quarterdeck.core.ids import LOWEST_ID, parse_id

if TYPE_CHECKING:
    from quarterdeck.client import Client
    from quarterdeck.client.models import SkillBody
    from quarterdeck.client.pages import Page

Order = Literal["asc", "desc"]

_PREFIX = re.compile("[0-9a-f]{4,32}")
_PAGE_ITEMS = 200
# Reading more would take longer than looking up the ID.
_MAX_ITEMS = 1000
_MAX_CANDIDATES = 5
# Runs have no list of their own: their prefixes are looked up in the runs of this many sessions.
_SESSIONS_OF_RUNS = 20


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
    has_any_cursor: bool = False


class Range(Struct, frozen=True):
    """The IDs that begin with a prefix."""

    low: UUID
    high: UUID

    def __contains__(self, identifier: UUID) -> bool:
        return self.low <= identifier <= self.high


def prefix_range(given: str) -> Range | None:
    """None if the text cannot be the beginning of an ID."""
    digits = given.replace("-", "").lower()
    if not _PREFIX.fullmatch(digits):
        return None
    low, high = UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))
    # Hyphens are optional, but only where an ID has them.
    return Range(low, high) if "-" not in given or str(low).startswith(given.lower()) else None


# --- what commands call ---


def session_id(client: "Client", given: str) -> UUID:
    return parse_id(given) or _find(given, *_sessions(client, given)).id


def skill(client: "Client", given: str, *, archived: bool | None = None) -> "SkillBody":
    """`archived` limits names and prefixes to archived or to active skills. Without it, active ones come first."""
    found = parse_id(given)
    listings = _skills(client) if archived is None else (_skills(client)[archived],)
    return client.get_skill(found) if found else _find(given, *listings)


def skill_or_none(client: "Client", given: str) -> "SkillBody | None":
    """For `--create`: None if there is no such skill."""
    found = parse_id(given)
    if found:
        return client.get_skill(found)
    matches = _matches(given, _skills(client)[0])
    return _only(given, matches, _skill_name) if matches else None


def key_id(client: "Client", given: str, workspace_id: UUID | str | None) -> UUID:
    return parse_id(given) or _find(given, _keys(client, workspace_id or client.get_workspace().id)).id


def webhook_id(client: "Client", given: str) -> UUID:
    return parse_id(given) or _find(given, _webhooks(client)).id


def token_id(client: "Client", session: UUID, given: str) -> UUID:
    return parse_id(given) or _find(given, _tokens(client, session)).id


def delivery_id(client: "Client", webhook: UUID, given: str) -> UUID:
    return parse_id(given) or _find(given, _deliveries(client, webhook)).id


def run_id(client: "Client", given: str, session: str | None = None) -> UUID:
    """`session` is the session of the run, as the user named it. Without it, recent sessions are searched."""
    if (found := parse_id(given)) is not None:
        return found
    if session is not None:
        in_session: Identified = _find(given, _runs(client, session_id(client, session)))
        return in_session.id
    wanted = prefix_range(given)
    if wanted is None:
        raise CliError(f"{given!r} is not the ID or ID prefix of a run", ExitCode.INVALID_INPUT)
    # A session is older than its runs.
    recent = client.list_sessions(limit=_SESSIONS_OF_RUNS, after=wanted.high).items
    runs = [run for one in recent for run in _in_range(wanted, _runs(client, one.id))]
    if not runs:
        where = f"in the {_SESSIONS_OF_RUNS} newest sessions. Use --session or the full ID."
        raise CliError(f"No run with the ID prefix {given} {where}", ExitCode.NOT_FOUND)
    only: Identified = _only(given, runs, _run_name)
    return only.id


# --- the lists ---


def _sessions(client: "Client", given: str) -> tuple[Listing[Any], ...]:
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


def _skills(client: "Client") -> tuple[Listing[Any], ...]:
    def listing(*, archived: bool) -> Listing[Any]:
        return Listing(
            "skill",
            lambda limit, after, order: client.list_skills(archived=archived, limit=limit, after=after, order=order),
            _skill_name,
        )

    return listing(archived=False), listing(archived=True)


def _keys(client: "Client", workspace_id: UUID | str) -> Listing[Any]:
    return Listing(
        "API key",
        lambda limit, after, order: client.list_api_keys(
            workspace_id=workspace_id, limit=limit, after=after, order=order
        ),
        lambda key: key.label,
    )


def _webhooks(client: "Client") -> Listing[Any]:
    return Listing(
        "webhook",
        lambda limit, after, order: client.list_webhooks(limit=limit, after=after, order=order),
        lambda webhook: webhook.description or webhook.url,
        has_any_cursor=True,
    )


def _deliveries(client: "Client", webhook: UUID) -> Listing[Any]:
    return Listing(
        "delivery",
        lambda limit, after, order: client.list_webhook_deliveries(webhook, limit=limit, after=after, order=order),
        lambda delivery: None,
        has_any_cursor=True,
    )


def _tokens(client: "Client", session: UUID) -> Listing[Any]:
    return Listing(
        "token",
        lambda limit, after, order: client.list_session_tokens(session, limit=limit, after=after, order=order),
        lambda token: token.prefix,
    )


def _runs(client: "Client", session: UUID) -> Listing[Any]:
    return Listing(
        "run",
        lambda limit, after, order: client.list_session_runs(session, limit=limit, after=after, order=order),
        _run_name,
    )


def _skill_name(found: Any) -> str:
    return str(found.name)


def _run_name(run: Any) -> None:
    return None


# --- the search ---


def _find(given: str, *listings: Listing[Item]) -> Item:
    """The only match in the first list that has any."""
    for listing in listings:
        if matches := _matches(given, listing):
            return _only(given, matches, listing.name)
    raise CliError(f"No {listings[0].noun} matches {given!r}. Use an ID, an ID prefix or a name.", ExitCode.NOT_FOUND)


def _matches(given: str, listing: Listing[Item]) -> list[Item]:
    """By the beginning of an ID, otherwise by name."""
    wanted = prefix_range(given)
    if wanted is not None and (found := list(_in_range(wanted, listing))):
        return found
    name = given.casefold()
    return [item for item in _walk(listing.named or listing.page) if (listing.name(item) or "").casefold() == name]


def _in_range(wanted: Range, listing: Listing[Item]) -> Iterator[Item]:
    if listing.has_any_cursor:
        before = UUID(int=wanted.low.int - 1) if wanted.low > LOWEST_ID else None
        items = listing.page(_MAX_CANDIDATES + 1, before, "asc").items
        yield from (item for item in items if item.id in wanted)
        return
    for item in _walk(listing.page):
        if item.id < wanted.low:
            return
        if item.id in wanted:
            yield item


def _walk(page: "Callable[[int, UUID | None, Order], Page[Item]]") -> Iterator[Item]:
    """All items, newest first. Raises an error when there are too many."""
    after: UUID | None = None
    for _ in range(_MAX_ITEMS // _PAGE_ITEMS):
        found = page(_PAGE_ITEMS, after, "desc")
        yield from found.items
        after = found.next_cursor
        if after is None:
            return
    raise CliError(f"Not found among the newest {_MAX_ITEMS:,}. Use the full ID.", ExitCode.NOT_FOUND)


def _only(given: str, matches: list[Item], name: Callable[[Item], str | None]) -> Item:
    if len(matches) == 1:
        return matches[0]
    shown = [f"{item.id} {name(item) or ''}".strip() for item in matches[:_MAX_CANDIDATES]]
    more = ", …" if len(matches) > _MAX_CANDIDATES else ""
    message = f"{given!r} is ambiguous. It matches {', '.join(shown)}{more}. Use more of the ID."
    raise CliError(message, ExitCode.INVALID_INPUT)

"""Finds the object that a command names: by ID, by the beginning of an ID, or by name. A full ID costs no request.

IDs are UUIDv7 and lists are ordered by ID, so all objects whose ID begins with a prefix are neighbours. Lists that
accept any ID as cursor are asked for that range only. The others are read from the newest on, up to a limit.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any
from uuid import UUID

from msgspec import Struct

from quarterdeck.cli import listings
from quarterdeck.cli.exit_codes import CliError, ExitCode
from quarterdeck.cli.listings import Identified, Item, Listing, Order
from quarterdeck.core.ids import LOWEST_ID, parse_id

if TYPE_CHECKING:
    from quarterdeck.client import Client
    from quarterdeck.client.calls import Page
    from quarterdeck.client.models import ActionBody, AgentBody, SkillBody

_PREFIX = re.compile("[0-9a-f]{4,32}")
_PAGE_ITEMS = 200
# Reading more would take longer than looking up the ID.
_MAX_ITEMS = 1000
_MAX_CANDIDATES = 5
# Runs have no list of their own: their prefixes are looked up in the runs of this many sessions.
_SESSIONS_OF_RUNS = 20


class Named(Struct, frozen=True):
    id: UUID
    name: str | None


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
    from quarterdeck.client import Forbidden, NotFound

    found = parse_id(given)
    if found is not None:
        return found
    try:
        matching: Identified = _find(given, *listings.sessions(client, given))
        return matching.id
    except (Forbidden, NotFound):
        # A session token cannot list sessions.
        if (own := client.whoami().session_id) is None:
            raise
    if _is_named(given, own, client.get_session(own).title):
        return own
    raise CliError(f"This session token only works in the session {own}", ExitCode.NOT_FOUND)


def _is_named(given: str, identifier: UUID, name: str | None) -> bool:
    wanted = prefix_range(given)
    return (wanted is not None and identifier in wanted) or given.casefold() == (name or "").casefold()


def skill(client: "Client", given: str, *, archived: bool | None = None) -> "SkillBody":
    """`archived` limits names and prefixes to archived or to active skills. Without it, active ones come first."""
    found = parse_id(given)
    lists = listings.skills(client)
    return client.get_skill(found) if found else _find(given, *(lists if archived is None else lists[archived:][:1]))


def skill_or_none(client: "Client", given: str) -> "SkillBody | None":
    """For `--create`: None if there is no such skill."""
    found = parse_id(given)
    if found:
        return client.get_skill(found)
    matches = _matches(given, listings.skills(client)[0])
    return _only(given, matches, listings.skill_name) if matches else None


def agent(client: "Client", given: str, *, archived: bool | None = None) -> "AgentBody":
    """`archived` as for `skill`."""
    found = parse_id(given)
    lists = listings.agents(client)
    return client.get_agent(found) if found else _find(given, *(lists if archived is None else lists[archived:][:1]))


def agent_or_none(client: "Client", given: str) -> "AgentBody | None":
    """For `--create`: None if there is no such agent."""
    found = parse_id(given)
    if found:
        return client.get_agent(found)
    matches = _matches(given, listings.agents(client)[0])
    return _only(given, matches, listings.skill_name) if matches else None


def mcp_server_id(client: "Client", given: str) -> UUID:
    return parse_id(given) or _find(given, listings.mcp_servers(client)).id


def credential_id(client: "Client", given: str) -> UUID:
    return parse_id(given) or _find(given, listings.credentials(client)).id


def key_id(client: "Client", given: str, workspace_id: UUID | str | None) -> UUID:
    return parse_id(given) or _find(given, listings.keys(client, workspace_id or client.get_workspace().id)).id


def webhook_id(client: "Client", given: str) -> UUID:
    return parse_id(given) or _find(given, listings.webhooks(client)).id


def token_id(client: "Client", session: UUID, given: str) -> UUID:
    return parse_id(given) or _find(given, listings.tokens(client, session)).id


def delivery_id(client: "Client", webhook: UUID, given: str) -> UUID:
    return parse_id(given) or _find(given, listings.deliveries(client, webhook)).id


def run_id(client: "Client", given: str, session: str | None = None) -> UUID:
    """`session` is the session of the run, as the user named it. Without it, recent sessions are searched."""
    if (found := parse_id(given)) is not None:
        return found
    if session is not None:
        in_session: Identified = _find(given, listings.runs(client, session_id(client, session)))
        return in_session.id
    wanted = prefix_range(given)
    if wanted is None:
        raise CliError(f"{given!r} is not the ID or ID prefix of a run", ExitCode.INVALID_INPUT)
    # A session is older than its runs.
    recent = client.list_sessions(limit=_SESSIONS_OF_RUNS, after=wanted.high).items
    runs = [run for one in recent for run in _in_range(wanted, listings.runs(client, one.id))]
    if not runs:
        where = f"in the {_SESSIONS_OF_RUNS} newest sessions. Use --session or the full ID."
        raise CliError(f"No run with the ID prefix {given} {where}", ExitCode.NOT_FOUND)
    only: Identified = _only(given, runs, listings.run_name)
    return only.id


def action(client: "Client", given: str) -> "ActionBody":
    if (found := parse_id(given)) is not None:
        return client.get_action(found)
    if prefix_range(given) is None:
        raise CliError(f"{given!r} is not the ID or ID prefix of an action", ExitCode.INVALID_INPUT)
    matching: ActionBody = _find(given, listings.actions(client))
    return matching


def user_id(client: "Client", given: str) -> UUID:
    return parse_id(given) or _find(given, listings.users(client)).id


def audited_id(client: "Client", given: str, type_: str | None) -> UUID:
    """The object of audit events. Without a type, all kinds of objects that have a list are searched."""
    if (found := parse_id(given)) is not None:
        return found
    if type_ == "run":
        return run_id(client, given)
    lists: dict[str, Callable[[], Iterable[Listing[Any]]]] = {
        "session": lambda: listings.sessions(client, given),
        "skill": lambda: listings.skills(client),
        "agent": lambda: listings.agents(client),
        "mcp_server": lambda: [listings.mcp_servers(client)],
        "credential": lambda: [listings.credentials(client)],
        "webhook": lambda: [listings.webhooks(client)],
        "api_key": lambda: [listings.keys(client, client.get_workspace().id)],
        "member": lambda: [listings.users(client)],
    }
    if type_ is not None and type_ not in lists:
        raise CliError(f"Use the full ID of the {type_.replace('_', ' ')}", ExitCode.INVALID_INPUT)
    searched = [listing for name, each in lists.items() if type_ in (None, name) for listing in each()]
    matches = {item.id: listing.name(item) for listing in searched for item in _matches(given, listing)}
    if not matches:
        what = "object" if type_ is None else searched[0].noun
        raise CliError(f"No {what} matches {given!r}. Use the full ID if it was deleted.", ExitCode.NOT_FOUND)
    only: Named = _only(given, [Named(*each) for each in matches.items()], lambda item: item.name)
    return only.id


# --- the search ---


def _find(given: str, *searched: Listing[Item]) -> Item:
    """The only match in the first list that has any."""
    for listing in searched:
        if matches := _matches(given, listing):
            return _only(given, matches, listing.name)
    raise CliError(f"No {searched[0].noun} matches {given!r}. Use an ID, an ID prefix or a name.", ExitCode.NOT_FOUND)


def _matches(given: str, listing: Listing[Item]) -> list[Item]:
    """By the beginning of an ID, otherwise by name."""
    wanted = prefix_range(given)
    if wanted is not None and (found := list(_in_range(wanted, listing))):
        return found
    return [item for item in _walk(listing.named or listing.page) if listing.has_name(item, given)]


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
    hint = "Use the ID." if prefix_range(given) is None else "Use more of the ID."
    message = f"{given!r} is ambiguous. It matches {', '.join(shown)}{more}. {hint}"
    raise CliError(message, ExitCode.INVALID_INPUT)

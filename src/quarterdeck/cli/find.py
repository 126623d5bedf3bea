"""Finds the object that a command names: by ID, by the beginning of an ID, or by name. A full ID costs no request.

IDs are UUIDv7 and lists are ordered by ID, so all objects whose ID begins with a prefix are neighbours. Lists that
accept any ID as cursor are asked for that range only. The others are read from the newest on, up to a limit.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any
from unicodedata import normalize
from uuid import UUID

from msgspec import Struct

from quarterdeck.cli.errors import CliError, ExitCode
from quarterdeck.client import Client, Forbidden, NotFound
from quarterdeck.client.models import ActionBody, AgentBody, SkillBody
from quarterdeck.core.ids import LOWEST_ID, parse_id

_PREFIX = re.compile("[0-9a-f]{4,32}")
_PAGE_ITEMS = 200
# Reading more would take longer than looking up the ID.
_MAX_ITEMS = 1000
_MAX_CANDIDATES = 5
# Runs have no list of their own: their prefixes are looked up in the runs of this many sessions.
_SESSIONS_OF_RUNS = 20


class Listing(Struct, frozen=True):
    """A list of the API, and the names of its items."""

    noun: str
    # A method of the client, called with limit, after and order.
    page: Callable[..., Any]
    name: Callable[[Any], str | None] = lambda item: None
    # Like `page`, with only the items whose name may be the given one. None: `page` is read to its end.
    named: Callable[..., Any] | None = None
    other_name: Callable[[Any], str | None] = lambda item: None
    has_any_cursor: bool = False

    def has_name(self, item: Any, wanted: str) -> bool:
        names = (self.name(item), self.other_name(item))
        return _folded(wanted) in (_folded(name) for name in names if name is not None)


class Named(Struct, frozen=True):
    id: UUID
    name: str | None
    other_name: str | None = None


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


# --- the lists ---


def _sessions(client: Client, given: str) -> list[Listing]:
    def listing(*, archived: bool) -> Listing:
        page = partial(client.list_sessions, archived=archived)
        return Listing("session", page, lambda one: one.title, partial(page, search=given), has_any_cursor=True)

    return [listing(archived=False), listing(archived=True)]


def _archivable(noun: str, page: Callable[..., Any]) -> list[Listing]:
    """Active objects, and archived ones."""
    return [Listing(noun, partial(page, archived=archived), lambda one: one.name) for archived in (False, True)]


def _mcp_servers(client: Client) -> Listing:
    return Listing("MCP server", client.list_mcp_servers, lambda server: server.name)


def _credentials(client: Client) -> Listing:
    return Listing("credential", client.list_credentials, lambda credential: credential.name)


def _keys(client: Client, workspace_id: UUID | str | None) -> Listing:
    workspace_id = workspace_id or client.get_workspace().id
    return Listing("API key", partial(client.list_api_keys, workspace_id=workspace_id), lambda key: key.label)


def _webhooks(client: Client) -> Listing:
    return Listing(
        "webhook",
        client.list_webhooks,
        lambda webhook: webhook.description or webhook.url,
        other_name=lambda webhook: webhook.url,
        has_any_cursor=True,
    )


def _runs(client: Client, session: UUID) -> Listing:
    return Listing("run", partial(client.list_session_runs, session))


class _Users(Struct, frozen=True):
    items: list[Named]
    next_cursor: UUID | None


def _users(client: Client) -> Listing:
    def page(**given: Any) -> _Users:
        found = client.list_members(**given)
        actors = [one.user for one in found.items]
        items = [Named(one.user_id, one.primary_email or one.display_name, one.display_name) for one in actors]
        return _Users(items, found.next_cursor)

    return Listing("user", page, lambda one: one.name, other_name=lambda one: one.other_name)


def _folded(name: str) -> str:
    """Names are found in any case and in the spellings that the server takes for the same."""
    return " ".join(normalize("NFC", name).split()).casefold()


# --- what commands call ---


def session_id(client: Client, given: str) -> UUID:
    if (found := parse_id(given)) is not None:
        return found
    try:
        return _id(given, *_sessions(client, given))
    except (Forbidden, NotFound):
        # A session token cannot list sessions.
        if (own := client.whoami().session_id) is None:
            raise
    wanted, title = prefix_range(given), client.get_session(own).title
    if (wanted is not None and own in wanted) or given.casefold() == (title or "").casefold():
        return own
    raise CliError(f"This session token only works in the session {own}", ExitCode.NOT_FOUND)


def skill(client: Client, given: str, *, archived: bool | None = None) -> SkillBody:
    """`archived` limits names and prefixes to archived or to active skills. Without it, active ones come first."""
    found: SkillBody = _archivable_item(given, client.get_skill, _archivable("skill", client.list_skills), archived)
    return found


def skill_or_none(client: Client, given: str) -> SkillBody | None:
    """For `--create`: None if there is no such skill."""
    found: SkillBody | None = _item_or_none(given, client.get_skill, _archivable("skill", client.list_skills)[0])
    return found


def agent(client: Client, given: str, *, archived: bool | None = None) -> AgentBody:
    """`archived` as for `skill`."""
    found: AgentBody = _archivable_item(given, client.get_agent, _archivable("agent", client.list_agents), archived)
    return found


def agent_or_none(client: Client, given: str) -> AgentBody | None:
    """For `--create`: None if there is no such agent."""
    found: AgentBody | None = _item_or_none(given, client.get_agent, _archivable("agent", client.list_agents)[0])
    return found


def mcp_server_id(client: Client, given: str) -> UUID:
    return _id(given, _mcp_servers(client))


def credential_id(client: Client, given: str) -> UUID:
    return _id(given, _credentials(client))


def key_id(client: Client, given: str, workspace_id: UUID | str | None) -> UUID:
    return parse_id(given) or _id(given, _keys(client, workspace_id))


def webhook_id(client: Client, given: str) -> UUID:
    return _id(given, _webhooks(client))


def token_id(client: Client, session: UUID, given: str) -> UUID:
    return _id(given, Listing("token", partial(client.list_session_tokens, session), lambda token: token.prefix))


def delivery_id(client: Client, webhook: UUID, given: str) -> UUID:
    page = partial(client.list_webhook_deliveries, webhook)
    return _id(given, Listing("delivery", page, has_any_cursor=True))


def run_id(client: Client, given: str, session: str | None = None) -> UUID:
    """`session` is the session of the run, as the user named it. Without it, recent sessions are searched."""
    if (found := parse_id(given)) is not None:
        return found
    if session is not None:
        return _id(given, _runs(client, session_id(client, session)))
    wanted = prefix_range(given)
    if wanted is None:
        raise CliError(f"{given!r} is not the ID or ID prefix of a run")
    # A session is older than its runs.
    recent = client.list_sessions(limit=_SESSIONS_OF_RUNS, after=wanted.high).items
    runs = [Named(run.id, None) for one in recent for run in _in_range(wanted, _runs(client, one.id))]
    if not runs:
        where = f"in the {_SESSIONS_OF_RUNS} newest sessions. Use --session or the full ID."
        raise CliError(f"No run with the ID prefix {given} {where}", ExitCode.NOT_FOUND)
    return _only(given, runs).id


def action(client: Client, given: str) -> ActionBody:
    if (found := parse_id(given)) is not None:
        return client.get_action(found)
    if prefix_range(given) is None:
        raise CliError(f"{given!r} is not the ID or ID prefix of an action")
    matching: ActionBody = _find(given, Listing("action", client.list_actions, has_any_cursor=True))
    return matching


def user_id(client: Client, given: str) -> UUID:
    return _id(given, _users(client))


def audited_id(client: Client, given: str, type_: str | None) -> UUID:
    """The object of audit events. Without a type, all kinds of objects that have a list are searched."""
    if (found := parse_id(given)) is not None:
        return found
    if type_ == "run":
        return run_id(client, given)
    lists: dict[str, Callable[[], Iterable[Listing]]] = {
        "session": lambda: _sessions(client, given),
        "skill": lambda: _archivable("skill", client.list_skills),
        "agent": lambda: _archivable("agent", client.list_agents),
        "mcp_server": lambda: [_mcp_servers(client)],
        "credential": lambda: [_credentials(client)],
        "webhook": lambda: [_webhooks(client)],
        "api_key": lambda: [_keys(client, None)],
        "member": lambda: [_users(client)],
    }
    if type_ is not None and type_ not in lists:
        raise CliError(f"Use the full ID of the {type_.replace('_', ' ')}")
    searched = [listing for name, each in lists.items() if type_ in (None, name) for listing in each()]
    matches = {item.id: Named(item.id, listing.name(item)) for listing in searched for item in _matches(given, listing)}
    if not matches:
        what = "object" if type_ is None else searched[0].noun
        raise CliError(f"No {what} matches {given!r}. Use the full ID if it was deleted.", ExitCode.NOT_FOUND)
    return _only(given, list(matches.values())).id


# --- the search ---


def _id(given: str, *searched: Listing) -> UUID:
    found: UUID = parse_id(given) or _find(given, *searched).id
    return found


def _archivable_item(given: str, get: Callable[[UUID], Any], lists: list[Listing], archived: bool | None) -> Any:
    found = parse_id(given)
    return get(found) if found else _find(given, *(lists if archived is None else [lists[archived]]))


def _item_or_none(given: str, get: Callable[[UUID], Any], listing: Listing) -> Any:
    found = parse_id(given)
    if found is not None:
        return get(found)
    matches = _matches(given, listing)
    return _only_item(given, matches, listing) if matches else None


def _find(given: str, *searched: Listing) -> Any:
    """The only match in the first list that has any."""
    for listing in searched:
        if matches := _matches(given, listing):
            return _only_item(given, matches, listing)
    raise CliError(f"No {searched[0].noun} matches {given!r}. Use an ID, an ID prefix or a name.", ExitCode.NOT_FOUND)


def _only_item(given: str, matches: list[Any], listing: Listing) -> Any:
    _only(given, [Named(item.id, listing.name(item)) for item in matches])
    return matches[0]


def _matches(given: str, listing: Listing) -> list[Any]:
    """By the beginning of an ID, otherwise by name."""
    wanted = prefix_range(given)
    if wanted is not None and (found := list(_in_range(wanted, listing))):
        return found
    return [item for item in _walk(listing.named or listing.page) if listing.has_name(item, given)]


def _in_range(wanted: Range, listing: Listing) -> Iterator[Any]:
    if listing.has_any_cursor:
        before = UUID(int=wanted.low.int - 1) if wanted.low > LOWEST_ID else None
        items = listing.page(limit=_MAX_CANDIDATES + 1, after=before, order="asc").items
        yield from (item for item in items if item.id in wanted)
        return
    for item in _walk(listing.page):
        if item.id < wanted.low:
            return
        if item.id in wanted:
            yield item


def _walk(page: Callable[..., Any]) -> Iterator[Any]:
    """All items, newest first. Raises an error when there are too many."""
    after: UUID | None = None
    for _ in range(_MAX_ITEMS // _PAGE_ITEMS):
        found = page(limit=_PAGE_ITEMS, after=after, order="desc")
        yield from found.items
        after = found.next_cursor
        if after is None:
            return
    raise CliError(f"Not found among the newest {_MAX_ITEMS:,}. Use the full ID.", ExitCode.NOT_FOUND)


def _only(given: str, matches: list[Named]) -> Named:
    if len(matches) == 1:
        return matches[0]
    candidates = [f"{item.id} {item.name or ''}".strip() for item in matches[:_MAX_CANDIDATES]]
    more = ", …" if len(matches) > _MAX_CANDIDATES else ""
    hint = "Use the ID." if prefix_range(given) is None else "Use more of the ID."
    raise CliError(f"{given!r} is ambiguous. It matches {', '.join(candidates)}{more}. {hint}")

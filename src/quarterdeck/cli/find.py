"""Finds the object that a command names: by ID, by the beginning of an ID, or by name. A full ID costs no request.

IDs are UUIDv7 and lists are ordered by ID, so all objects whose ID begins with a prefix are neighbours. Lists that
accept any ID as cursor are asked for that range only. The others are read from the newest on, up to a limit.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from types import SimpleNamespace
from typing import Any, TypeVar
from unicodedata import normalize
from uuid import UUID

from msgspec import Struct

from quarterdeck.cli.errors import CliError, ExitCode
from quarterdeck.client import Client, Forbidden, NotFound
from quarterdeck.client.models import ActionBody, AgentBody, InvitationBody, MembershipBody, ProfileBody, SkillBody
from quarterdeck.core.ids import LOWEST_ID, parse_id

T = TypeVar("T")

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
    # A method of the client, called with the client, limit, after and order.
    page: Callable[..., Any]
    names: Callable[[Any], Sequence[str | None]] = lambda item: (None,)
    # Like `page`, with only the items whose name may be the given one. None: `page` is read to its end.
    named: Callable[..., Any] | None = None
    has_any_cursor: bool = False

    def has_name(self, item: Any, wanted: str) -> bool:
        return _folded(wanted) in (_folded(name) for name in self.names(item) if name is not None)


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


def _by_name(item: Any) -> Sequence[str | None]:
    return (item.name,)


def _archivable(noun: str, page: Callable[..., Any]) -> list[Listing]:
    """Active objects, and archived ones."""
    return [Listing(noun, partial(page, archived=archived), _by_name) for archived in (False, True)]


def _sessions(given: str) -> list[Listing]:
    def listing(*, archived: bool) -> Listing:
        page = partial(Client.list_sessions, archived=archived)
        return Listing("session", page, lambda one: (one.title,), partial(page, search=given), has_any_cursor=True)

    return [listing(archived=False), listing(archived=True)]


def _list_keys(client: Client, **given: Any) -> Any:
    # This operation requires the workspace header.
    return client.list_api_keys(workspace_id=client.whoami().workspace_id, **given)


def _list_below(page: Callable[..., Any], owner: UUID, client: Client, **given: Any) -> Any:
    """A list of what belongs to a session or webhook."""
    return page(client, owner, **given)


def _runs(session: UUID) -> Listing:
    return Listing("run", partial(_list_below, Client.list_session_runs, session))


def _list_users(client: Client, *, is_current: bool = False, **given: Any) -> SimpleNamespace:
    """Members by the ID of the user, with email address and display name as names. Also former ones by default."""
    found = client.list_members(**given)
    users = [one.user for one in found.items if not (is_current and one.ended_at)]
    names = {one.user_id: (one.primary_email or one.display_name, one.display_name) for one in users}
    items = [SimpleNamespace(id=user_id, names=each) for user_id, each in names.items()]
    return SimpleNamespace(items=items, next_cursor=found.next_cursor)


def _list_workspaces(client: Client, **_: Any) -> SimpleNamespace:
    found = sorted(client.get_profile().workspaces, key=lambda one: one.workspace_id, reverse=True)
    items = [SimpleNamespace(id=one.workspace_id, name=one.workspace_name) for one in found]
    return SimpleNamespace(items=items, next_cursor=None)


def _list_open_invitations(client: Client, **given: Any) -> SimpleNamespace:
    found = client.list_invitations(**given)
    return SimpleNamespace(items=list(filter(is_open, found.items)), next_cursor=found.next_cursor)


def is_open(one: InvitationBody) -> bool:
    return one.accepted_at is None and one.withdrawn_at is None and one.expires_at > datetime.now(UTC)


SKILLS = _archivable("skill", Client.list_skills)
AGENTS = _archivable("agent", Client.list_agents)
MCP_SERVERS = Listing("MCP server", Client.list_mcp_servers, _by_name)
CREDENTIALS = Listing("credential", Client.list_credentials, _by_name)
KEYS = Listing("API key", _list_keys, lambda key: (key.label,))
WEBHOOKS = Listing(
    "webhook", Client.list_webhooks, lambda one: (one.description or one.url, one.url), has_any_cursor=True
)
TRUSTED_JOBS = Listing("trusted job", Client.list_trusted_jobs, _by_name)
_USERS = Listing("user", _list_users, lambda one: one.names)
MEMBERS = Listing("member", partial(_list_users, is_current=True), lambda one: one.names)
WORKSPACES = Listing("workspace", _list_workspaces, _by_name)
INVITATIONS = Listing("pending invitation", _list_open_invitations, lambda one: (one.email,))
DEVICES = Listing("device", Client.list_devices, _by_name)


def _folded(name: str) -> str:
    """Names are found in any case and in the spellings that the server takes for the same."""
    return " ".join(normalize("NFC", name).split()).casefold()


# --- what commands call ---


def session_id(client: Client, given: str) -> UUID:
    if (found := parse_id(given)) is not None:
        return found
    try:
        return _id(client, given, *_sessions(given))
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
    found = parse_id(given)
    matching: SkillBody = client.get_skill(found) if found else _find(client, given, *_some(SKILLS, archived))
    return matching


def agent(client: Client, given: str, *, archived: bool | None = None) -> AgentBody:
    """`archived` as for `skill`."""
    found = parse_id(given)
    matching: AgentBody = client.get_agent(found) if found else _find(client, given, *_some(AGENTS, archived))
    return matching


def _some(lists: list[Listing], archived: bool | None) -> list[Listing]:
    return lists if archived is None else [lists[archived]]


def or_none(search: Callable[..., T], client: Client, given: str) -> T | None:
    """For `--create`: None if there is no such active skill or agent."""
    try:
        return search(client, given, archived=False)
    except CliError as error:
        if error.code is not ExitCode.NOT_FOUND:
            raise
        return None


def mcp_server_id(client: Client, given: str) -> UUID:
    return _id(client, given, MCP_SERVERS)


def credential_id(client: Client, given: str) -> UUID:
    return _id(client, given, CREDENTIALS)


def key_id(client: Client, given: str) -> UUID:
    return _id(client, given, KEYS)


def webhook_id(client: Client, given: str) -> UUID:
    return _id(client, given, WEBHOOKS)


def trusted_job_id(client: Client, given: str) -> UUID:
    return _id(client, given, TRUSTED_JOBS)


def user_id(client: Client, given: str) -> UUID:
    return _id(client, given, _USERS)


def member_id(client: Client, given: str) -> UUID:
    return _id(client, given, MEMBERS)


def own_profile(client: Client) -> ProfileBody:
    try:
        return client.get_profile()
    except NotFound:
        hint = "Sign in with `qd login`."
        raise CliError(f"This is for people. API keys and tokens cannot use it. {hint}", ExitCode.NOT_ALLOWED) from None


def membership(client: Client, given: str | None) -> MembershipBody:
    """In the workspace, or in that of the person who joined only one, or joined it first."""
    workspaces = own_profile(client).workspaces
    if not workspaces:
        raise CliError("You are not a member of any workspace. Ask for an invitation.", ExitCode.NOT_ALLOWED)
    if given is None:
        return workspaces[0]
    found = _id(client, given, WORKSPACES)
    for one in workspaces:
        if one.workspace_id == found:
            return one
    raise CliError(f"You are not a member of the workspace {found}. See `qd workspaces list`.", ExitCode.NOT_FOUND)


def invitation_id(client: Client, given: str) -> UUID:
    return _id(client, given, INVITATIONS)


def device_id(client: Client, given: str) -> UUID:
    return _id(client, given, DEVICES)


def token_id(client: Client, session: UUID, given: str) -> UUID:
    tokens = Listing("token", partial(_list_below, Client.list_session_tokens, session), lambda one: (one.prefix,))
    return _id(client, given, tokens)


def delivery_id(client: Client, webhook: UUID, given: str) -> UUID:
    page = partial(_list_below, Client.list_webhook_deliveries, webhook)
    return _id(client, given, Listing("delivery", page, has_any_cursor=True))


def run_id(client: Client, given: str, session: str | None = None) -> UUID:
    """`session` is the session of the run, as the user named it. Without it, recent sessions are searched."""
    if (found := parse_id(given)) is not None:
        return found
    if session is not None:
        return _id(client, given, _runs(session_id(client, session)))
    wanted = prefix_range(given)
    if wanted is None:
        raise CliError(f"{given!r} is not the ID or ID prefix of a run")
    # A session is older than its runs.
    recent = client.list_sessions(limit=_SESSIONS_OF_RUNS, after=wanted.high).items
    runs = {run.id: None for one in recent for run in _in_range(client, wanted, _runs(one.id))}
    if not runs:
        where = f"in the {_SESSIONS_OF_RUNS} newest sessions. Use --session or the full ID."
        raise CliError(f"No run with the ID prefix {given} {where}", ExitCode.NOT_FOUND)
    return _only(given, runs)


def action(client: Client, given: str) -> ActionBody:
    if (found := parse_id(given)) is not None:
        return client.get_action(found)
    if prefix_range(given) is None:
        raise CliError(f"{given!r} is not the ID or ID prefix of an action")
    matching: ActionBody = _find(client, given, Listing("action", Client.list_actions, has_any_cursor=True))
    return matching


def audited_id(client: Client, given: str, type_: str | None) -> UUID:
    """The object of audit events. Without a type, all kinds of objects that have a list are searched."""
    if (found := parse_id(given)) is not None:
        return found
    if type_ == "run":
        return run_id(client, given)
    lists = {
        "session": _sessions(given),
        "skill": SKILLS,
        "agent": AGENTS,
        "mcp_server": [MCP_SERVERS],
        "credential": [CREDENTIALS],
        "webhook": [WEBHOOKS],
        "api_key": [KEYS],
        "member": [_USERS],
    }
    if type_ is not None and type_ not in lists:
        raise CliError(f"Use the full ID of the {type_.replace('_', ' ')}")
    searched = [listing for name, each in lists.items() if type_ in (None, name) for listing in each]
    matches = {item.id: listing.names(item)[0] for listing in searched for item in _matches(client, given, listing)}
    if not matches:
        what = "object" if type_ is None else searched[0].noun
        raise CliError(f"No {what} matches {given!r}. Use the full ID if it was deleted.", ExitCode.NOT_FOUND)
    return _only(given, matches)


# --- the search ---


def _id(client: Client, given: str, *searched: Listing) -> UUID:
    found: UUID = parse_id(given) or _find(client, given, *searched).id
    return found


def _find(client: Client, given: str, *searched: Listing) -> Any:
    """The only match in the first list that has any."""
    for listing in searched:
        if matches := _matches(client, given, listing):
            _only(given, {item.id: listing.names(item)[0] for item in matches})
            return matches[0]
    raise CliError(f"No {searched[0].noun} matches {given!r}. Use an ID, an ID prefix or a name.", ExitCode.NOT_FOUND)


def _matches(client: Client, given: str, listing: Listing) -> list[Any]:
    """By the beginning of an ID, otherwise by name."""
    wanted = prefix_range(given)
    if wanted is not None and (found := list(_in_range(client, wanted, listing))):
        return found
    return [item for item in _walk(client, listing.named or listing.page) if listing.has_name(item, given)]


def _in_range(client: Client, wanted: Range, listing: Listing) -> Iterator[Any]:
    if listing.has_any_cursor:
        before = UUID(int=wanted.low.int - 1) if wanted.low > LOWEST_ID else None
        items = listing.page(client, limit=_MAX_CANDIDATES + 1, after=before, order="asc").items
        yield from (item for item in items if item.id in wanted)
        return
    for item in _walk(client, listing.page):
        if item.id < wanted.low:
            return
        if item.id in wanted:
            yield item


def _walk(client: Client, page: Callable[..., Any]) -> Iterator[Any]:
    """All items, newest first. Raises an error when there are too many."""
    after: UUID | None = None
    for _ in range(_MAX_ITEMS // _PAGE_ITEMS):
        found = page(client, limit=_PAGE_ITEMS, after=after, order="desc")
        yield from found.items
        after = found.next_cursor
        if after is None:
            return
    raise CliError(f"Not found among the newest {_MAX_ITEMS:,}. Use the full ID.", ExitCode.NOT_FOUND)


def _only(given: str, names: Mapping[UUID, str | None]) -> UUID:
    """The ID, if there is only one. Otherwise an error with the IDs and names of some."""
    if len(names) == 1:
        return next(iter(names))
    candidates = [f"{found} {name or ''}".strip() for found, name in islice(names.items(), _MAX_CANDIDATES)]
    more = ", …" if len(names) > _MAX_CANDIDATES else ""
    hint = "Use the ID." if prefix_range(given) is None else "Use more of the ID."
    raise CliError(f"{given!r} is ambiguous. It matches {', '.join(candidates)}{more}. {hint}")

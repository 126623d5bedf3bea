"""The search in conversations: what is found, and in which order."""

from collections.abc import AsyncIterator, Callable
from uuid import UUID

import pytest
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from quarterdeck.core.errors import ErrorKind, ServiceError
from quarterdeck.core.ids import HIGHEST_ID, LOWEST_ID
from quarterdeck.core.settings import DatabaseSettings, ForkSettings
from quarterdeck.db.database import Connection, connection_options
from quarterdeck.sessions import forks, store
from quarterdeck.workspaces import service as workspaces
from tests.world import AS_OWNER, app_url

# In each of two workspaces, whose ids alternate. Each third one is archived.
SESSIONS = 30
_SESSION = """
INSERT INTO sessions (id, workspace_id, created_by, archived_at)
SELECT %s, id, owner_id, CASE WHEN %s THEN now() END FROM workspaces WHERE id = %s
"""
_EVENT = "INSERT INTO session_events (session_id, type, data, input_event_id) VALUES (%s, %s, %s, %s) RETURNING id"


async def say(connection: Connection, session_id: UUID, text: str, *, by_person: bool = False) -> None:
    """As a worker logs it, or as an input that a worker reads."""
    kind, data = ("input.accepted" if by_person else "message"), Jsonb({"text": text, "input_id": "i"})
    row = await (await connection.execute(_EVENT, (session_id, kind, data, None))).fetchone()
    assert row is not None
    if by_person:
        await connection.execute(_EVENT, (session_id, "input.consumed", Jsonb({"input_id": "i"}), row[0]))


@pytest.fixture
async def owner(database_url: str) -> AsyncIterator[Connection]:
    async with await AsyncConnection.connect(database_url, autocommit=True, options=AS_OWNER) as connection:
        yield connection


@pytest.fixture
async def ids(owner: Connection) -> list[UUID]:
    """Of the workspaces."""
    found = [await workspaces.create_workspace(owner, "x", f"{one}@example.com") for one in "ab"]
    for number in range(2 * SESSIONS):
        await owner.execute(_SESSION, (session(number), number % 6 > 3, found[number % 2]))
    return found


def session(number: int) -> UUID:
    return UUID(int=number + 1)


async def walk(
    connection: Connection, workspace_id: UUID, search: str, most: int, *, archived: bool, newest_first: bool
) -> list[int]:
    """The numbers of all sessions found, in pages of three."""
    start, found = (HIGHEST_ID if newest_first else LOWEST_ID), list[int]()
    while True:
        page = await store.find(
            connection,
            workspace_id,
            start,
            4,
            archived=archived,
            search=search,
            newest_first=newest_first,
            max_matches=most,
        )
        found += [one.int - 1 for one in page[:3]]
        if len(page) < 4:
            return found
        start = page[3]


@pytest.mark.long
async def test_both_ways_find_the_same_sessions_of_the_workspace(
    database_url: str, owner: Connection, ids: list[UUID]
) -> None:
    for number in range(2 * SESSIONS):
        await say(owner, session(number), f"Common ground, number {number}", by_person=number % 3 == 0)
        await say(owner, session(number), "Every fifth one" if number % 5 == 0 else "another one, not the fifth-rate")
    await owner.execute(
        "INSERT INTO session_events (session_id, type, data) VALUES (%s, 'tool.result', %s)",
        (session(0), Jsonb({"text": "unsaid"})),
    )
    options = connection_options(DatabaseSettings())
    expected: dict[str, Callable[[int], bool]] = {
        "common": lambda n: True,
        "COMMON ground": lambda n: True,
        '"ground common"': lambda n: False,
        '"every fifth"': lambda n: n % 5 == 0,
        "common every": lambda n: False,
        "every or 7": lambda n: n % 5 == 0 or n == 7,
        "one -another": lambda n: n % 5 == 0,
        "-another": lambda n: True,
        "17": lambda n: n == 17,
        "unsaid": lambda n: False,
        "!!! ' \\ & |": lambda n: False,
        f"workspace {ids[1]}": lambda n: False,
    }
    async with await AsyncConnection.connect(app_url(database_url), autocommit=True, options=options) as connection:
        for number, workspace_id in enumerate(ids):
            for search, is_meant in expected.items():
                for archived in (True, False):
                    numbers = [n for n in range(number, 2 * SESSIONS, 2) if (n % 6 > 3) == archived and is_meant(n)]
                    for newest_first in (True, False):
                        for most in (0, 1000):
                            found = await walk(
                                connection, workspace_id, search, most, archived=archived, newest_first=newest_first
                            )
                            assert found == sorted(numbers, reverse=newest_first), (search, archived, most)


async def test_long_texts_are_found_by_their_beginning(owner: Connection, ids: list[UUID]) -> None:
    # Words of four-byte letters, whose parts are words as well: no text of this length has more to index.
    letters = [chr(0x20000 + n) for n in range(40_000)]
    text = "first " + " ".join(f"{a}{b}-{b}{a}" for a, b in zip(letters[::2], letters[1::2], strict=True)) + " last"
    await say(owner, session(0), text)
    await say(owner, session(2), "x" * 1_000_000 + " unreached")
    for search, found in (("first", [0]), (f"{letters[0]}{letters[1]}", [0]), ("last", []), ("unreached", [])):
        assert await walk(owner, ids[0], search, 9, archived=False, newest_first=True) == found, search


@pytest.mark.long
async def test_texts_that_the_parser_reads_slowly(database_url: str, ids: list[UUID]) -> None:
    """Without the split into short words, each of these takes longer than the statement timeout of the service."""
    options = connection_options(DatabaseSettings())
    long_word = "x" * 150
    async with await AsyncConnection.connect(app_url(database_url), autocommit=True, options=options) as connection:
        for text in ("a_", "~/", "<!-- "):
            await say(connection, session(0), "before " + text * 50_000)
            await say(connection, session(0), "before " + text * 50_000, by_person=True)
        await say(connection, session(2), f"See {long_word}, and <b>this</b>.")
        for search, found in (("before", [0]), (long_word, [2]), ("<b>this", [2]), ('"and b"', [2])):
            assert await walk(connection, ids[0], search, 99, archived=False, newest_first=True) == found, search


async def test_a_fork_is_found_by_what_is_said_in_it(database_url: str, owner: Connection, ids: list[UUID]) -> None:
    """What it has from its origin is found there: adding the words of long texts again would take too long."""
    await say(owner, session(0), "A question", by_person=True)
    await say(owner, session(0), "An answer")
    options = connection_options(DatabaseSettings())
    async with await AsyncConnection.connect(app_url(database_url), autocommit=True, options=options) as connection:
        origin = await store.get(connection, ids[0], session(0), "demo")
        assert origin is not None
        async with connection.transaction():
            fork_id = await forks.fork(connection, origin, None, origin.created_by.user_id, ForkSettings())
        await say(connection, fork_id, "Another answer")
        for search, found in (("question", [0]), ("answer", [0, fork_id.int - 1]), ("another", [fork_id.int - 1])):
            assert await walk(connection, ids[0], search, 9999, archived=False, newest_first=False) == found, search


async def test_a_search_that_takes_too_long_says_so(owner: Connection, ids: list[UUID]) -> None:
    await owner.execute(
        "CREATE OR REPLACE FUNCTION matching_sessions(workspace_id uuid, search text, max_matches integer)"
        " RETURNS SETOF uuid LANGUAGE sql AS 'SELECT NULL::uuid FROM pg_sleep(60)'"
    )
    await owner.execute("SET statement_timeout = 100")
    with pytest.raises(ServiceError, match="The search took too long") as slow:
        await walk(owner, ids[0], "x", 9, archived=False, newest_first=True)
    assert slow.value.kind is ErrorKind.UNAVAILABLE

"""The search in conversations, among a million events."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from statistics import median
from time import perf_counter
from urllib.parse import quote

from bench.case import BenchError, Case, Ground, Round, Taken, at_most
from bench.filling import fill
from bench.server import Server, serving

_SESSIONS, _EVENTS = 100_000, 1_000_000
_TIMES = 20
# One text in about a thousand has it.
_USUAL = "word{number}"
# By what they find: the search, and how many sessions the page has.
_OTHERS = {
    "one text": ("deck 4711", 1),
    "every input": ("deck", 50),
    "every input, with a rare word": ("deck or word77", 50),
    "no text": ("nowhere", 0),
    "every text of the neighbour, none of ours": ("neighbour", 0),
}
_NEIGHBOUR = """
WITH other AS (
    INSERT INTO workspaces (id, name, owner_id) SELECT uuidv7(), 'neighbour', owner_id FROM workspaces RETURNING id
), kept AS (
    INSERT INTO sessions (id, workspace_id, created_by)
    SELECT uuidv7(), other.id, (SELECT owner_id FROM workspaces LIMIT 1) FROM other, generate_series(1, %s)
    RETURNING id, workspace_id
)
INSERT INTO conversation_words (session_id, event_id, words)
SELECT kept.id, n, words_of(kept.workspace_id, 'Our neighbour says what is on deck: ' || n)
FROM kept, generate_series(1, 4) n
"""


@asynccontextmanager
async def searchable(ground: Ground) -> AsyncIterator[Server]:
    # Enough for a search for one word in a thousand texts.
    share = 20 if ground.small else 1
    async with serving(ground) as server:
        await asyncio.to_thread(
            fill,
            server.database_url,
            workspace_id=server.workspace_id,
            sessions=_SESSIONS // share,
            events=_EVENTS // share,
            receipts=1,
            tell=ground.tell,
        )
        ground.tell("neighbour")
        await server.statement(_NEIGHBOUR, _SESSIONS // share)
        await server.settle()
        yield server


async def us(server: Server, one: Round) -> Taken:
    numbers = range(one.number * _TIMES, one.number * _TIMES + one.rows(_TIMES))
    samples_ms = [await _took_ms(server, _USUAL.format(number=number * 7), None) for number in numbers]
    notes = {
        f"{name}, ms": median([await _took_ms(server, search, found) for _ in range(one.rows(_TIMES))])
        for name, (search, found) in _OTHERS.items()
    }
    return Taken(median(samples_ms), samples_ms, notes)


async def _took_ms(server: Server, search: str, found: int | None) -> float:
    async with server.caller() as caller:
        before = perf_counter()
        page = await caller.get(f"/v1/sessions?search={quote(search)}&in=conversations")
        took_ms = (perf_counter() - before) * 1000
    if len(page["items"]) != found if found is not None else not page["items"]:
        raise BenchError(f"a search for {search} found {len(page['items'])} sessions")
    return took_ms


CASE = Case(
    title="search in conversations, 1 M events, first page, median",
    unit="ms",
    reach=at_most(100),
    stage=searchable,
    us=us,
    rounds=3,
)

"""Inputs and the log of a session are read with a budget: what is returned, in which order, and what is never cut."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from quarterdeck.core.ids import new_id
from quarterdeck.core.settings import DatabaseSettings
from quarterdeck.db.database import Connection, connection_options
from quarterdeck.models.context import fit_turns
from quarterdeck.models.model import AssistantTurn, ToolResult, UserTurn
from quarterdeck.runs import lifecycle_store as store
from quarterdeck.runs.model import ENTRY_BYTES, Superseded
from quarterdeck.worker.journal import TOOLS, next_step, turns_of
from tests.world import AS_OWNER, app_url

ALL = 1_000_000
_ADD = """
INSERT INTO session_events (session_id, run_id, type, data, record, input_event_id) VALUES (%s, %s, %s, %s, %s, %s)
RETURNING id
"""


class Log:
    """A session's log that a test writes. An input is known by its text."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.session_id = new_id()
        self.run_id = new_id()
        self._inputs: dict[str, tuple[int, str]] = {}

    async def accept(self, *texts: str) -> None:
        for text in texts:
            input_id = str(uuid4())
            event_id = await self._add("input.accepted", {"input_id": input_id, "text": text})
            self._inputs[text] = (event_id, input_id)

    async def consume(self, *texts: str) -> None:
        for text in texts:
            event_id, input_id = self._inputs[text]
            data = {"input_id": input_id, "step": 1}
            await self._add("input.consumed", data, input_event_id=event_id)

    async def discard(self, *texts: str) -> None:
        for text in texts:
            await self._add("input.discarded", {"input_id": self._inputs[text][1], "reason": "x"})

    async def answer(self, text: str, record: Any = None) -> None:
        await self._add("message", {"role": "assistant", "text": text}, record)

    async def call(self, name: str) -> None:
        await self._add("tool.call", {"call_id": name, "name": "tool", "arguments": {}})

    async def result(self, name: str, text: str) -> None:
        await self._add("tool.result", {"call_id": name, "name": "tool", "text": text})

    async def summarise(self, text: str, dropped_turns: int, kept_answers: int) -> None:
        data = {"summary": text, "dropped_turns": dropped_turns, "kept_answers": kept_answers}
        await self._add("context.compacted", data)

    async def read(self, budget_bytes: int) -> tuple[list[str], int]:
        """Texts of the turns, and the number of turns that were left out."""
        entries, left_out = await store.conversation(self.connection, self.session_id, budget_bytes)
        found = []
        for turn in turns_of(entries, self.run_id):
            match turn:
                case UserTurn(text) | AssistantTurn(text) | ToolResult(_, _, text):
                    found.append(text if len(text) < 20 else text[0])
        return found, left_out

    async def _add(self, type_: str, data: Any, record: Any = None, input_event_id: int | None = None) -> int:
        values = (self.session_id, self.run_id, type_, Jsonb(data), None if record is None else Jsonb(record))
        row = await (await self.connection.execute(_ADD, (*values, input_event_id))).fetchone()
        assert row is not None
        event_id: int = row[0]
        return event_id


@pytest.fixture
async def log(database_url: str) -> AsyncIterator[Log]:
    """With the role and options of a worker."""
    options = connection_options(DatabaseSettings())
    async with await AsyncConnection.connect(app_url(database_url), autocommit=True, options=options) as connection:
        yield Log(connection)


async def test_a_conversation_that_fits_is_read_whole(log: Log) -> None:
    await log.accept("one", "two")
    await log.consume("one")
    await log.answer("A")
    await log.call("c")
    await log.result("c", "R")
    await log.consume("two")
    await log.answer("B")
    await log.accept("waits")
    assert await log.read(ALL) == (["one", "A", "R", "two", "B"], 0)


async def test_the_newest_part_is_read(log: Log) -> None:
    for number in range(10):
        await log.accept(f"i{number}")
        await log.consume(f"i{number}")
        await log.answer(f"a{number}")
    turns = [f"{kind}{number}" for number in range(10) for kind in "ia"]
    for count in range(1, 21):
        expected = turns[-max(count, 2) :]
        assert await log.read(count * (ENTRY_BYTES + 2)) == (expected, 20 - len(expected))


async def test_a_step_is_not_cut(log: Log) -> None:
    await log.accept("i")
    await log.consume("i")
    for number in range(3):
        await log.answer(f"a{number}")
        await log.call(f"{number}")
        await log.result(f"{number}", f"r{number}")
    assert await log.read(1) == (["i", "a1", "r1", "a2", "r2"], 2)
    assert await log.read(3 * ENTRY_BYTES + 5) == (["i", "a0", "r0", "a1", "r1", "a2", "r2"], 0)


@pytest.mark.parametrize("context_tokens", [300, 1000, 2000, 4000, 20_000])
async def test_a_long_exchange_is_read_as_it_is_cut(log: Log, context_tokens: int) -> None:
    """What is left out when the log is read would be left out of the request anyway."""
    await log.accept("old", "task", "steered", "z" * 2_000, "more")
    await log.consume("old")
    await log.answer("Hello.")
    await log.consume("task")
    for number in range(30):
        for text, at in (("steered", 5), ("z" * 2_000, 20), ("more", 28)):
            if number == at:
                await log.consume(text)
        await log.answer(f"step {number}")
        await log.call(f"{number}")
        await log.result(f"{number}", f"{number}: " + "é" * (700 + 100 * (number % 9)))

    async def request(budget_bytes: int) -> tuple[list[Any], int]:
        entries, left_out = await store.conversation(log.connection, log.session_id, budget_bytes)
        kept, dropped = fit_turns(turns_of(entries, log.run_id), context_tokens, "Be brief.")
        return kept, left_out + dropped

    read, dropped = await request(context_tokens * 5)
    assert (read, dropped) == await request(10**9)
    texts = [turn.text for turn in read if isinstance(turn, UserTurn)]
    assert "task" in texts
    assert texts[-1] == "more"


async def test_the_task_is_read_whatever_the_inputs_after_it_need(log: Log) -> None:
    large = [f"{number}" * 3_000 for number in range(5)]
    await log.accept("task", *large)
    await log.consume("task")
    await log.answer("A")
    await log.call("c")
    await log.result("c", "r" * 3_000)
    await log.consume(*large)
    assert await log.read(5_000) == (["task", "A", "r", "3", "4"], 3)


async def test_inputs_of_the_newest_exchange_stay_beside_a_summary(log: Log) -> None:
    await log.accept("old", "task", "steered")
    await log.consume("old")
    await log.answer("Hello.")
    await log.consume("task")
    for number in range(3):
        await log.answer(f"a{number}")
        await log.call(f"{number}")
        await log.result(f"{number}", f"r{number}")
        if number == 1:
            await log.consume("steered")
    await log.summarise("S", 7, 1)
    assert await log.read(ALL) == (["[", "task", "steered", "a2", "r2"], 0)


async def test_results_that_were_refused_are_read_without_their_text(log: Log, database_url: str) -> None:
    await log.accept("i", "j")
    await log.consume("i")
    await log.answer("A")
    await log.call("c")
    await log.result("c", "poison")
    await log.consume("j")
    async with await AsyncConnection.connect(database_url, autocommit=True, options=AS_OWNER) as owner:
        marked = "UPDATE session_events SET record = '{\"left_out\": true}' WHERE data->>'text' = 'poison'"
        await owner.execute(marked)
    (entry,) = [
        entry
        for entry in (await store.conversation(log.connection, log.session_id, ALL))[0]
        if entry.type == "tool.result"
    ]
    assert (entry.data, entry.record, entry.text) == ({"call_id": "c", "name": "tool"}, None, "left_out")


async def test_open_calls_are_found_behind_a_large_input(log: Log) -> None:
    """A worker was lost before it carried out a call; the next attempt consumed more than the budget."""
    texts = ["first", "x" * 3_000, "y" * 3_000, "z" * 3_000]
    await log.accept(*texts)
    await log.consume("first")
    await log.answer("A")
    await log.call("c")
    await log.consume(*texts[1:])
    entries, left_out = await store.conversation(log.connection, log.session_id, 1_000)
    turns = turns_of(entries, log.run_id)
    assert next_step(turns) == TOOLS
    assert await log.read(1_000) == (["first", "A", "z"], 2)
    assert left_out == 2


async def test_discarded_inputs_use_nothing_of_the_budget(log: Log) -> None:
    large = [f"{number}" * 5_000 for number in range(8)]
    await log.accept("one")
    await log.consume("one")
    await log.accept(*large)
    await log.answer("A")
    await log.discard(*large)
    await log.accept("two")
    await log.consume("two")
    await log.accept("w" * 5_000)
    assert await log.read(1_000) == (["one", "A", "two"], 0)


async def test_a_summary_stands_for_the_turns_before_it(log: Log) -> None:
    """The input that is answered stays, and so does what was kept. `[`: the summary."""
    for number in range(3):
        await log.accept(f"i{number}")
        await log.consume(f"i{number}")
        await log.answer(f"a{number}")
    await log.call("c")
    await log.result("c", "r")
    await log.summarise("S", 5, 1)
    assert await log.read(ALL) == (["[", "i2", "a2", "r"], 0)
    await log.answer("a3")
    await log.call("d")
    await log.result("d", "t")
    await log.summarise("T", 6, 1)
    assert await log.read(ALL) == (["[", "i2", "a3", "t"], 0), "the newest one counts, with the newest input"
    await log.answer("a4")
    await log.accept("i4")
    await log.consume("i4")
    await log.summarise("U", 10, 0)
    assert await log.read(ALL) == (["[", "i4"], 0)
    for number in (5, 6):
        await log.answer(f"a{number}")
        await log.accept(f"i{number}")
        await log.consume(f"i{number}")
    assert await log.read(1) == (["[", "a6", "i6"], 3), "it is read whatever the budget is"
    # An input that was summarised is dropped: the log is read as if there were no summary of it.
    await log.discard("i1")
    assert (await log.read(ALL))[0] == [
        "i0",
        "a0",
        "a1",
        "i2",
        "a2",
        "r",
        "a3",
        "t",
        "a4",
        "i4",
        "a5",
        "i5",
        "a6",
        "i6",
    ]


async def test_a_record_of_a_model_counts(log: Log) -> None:
    for name in "abc":
        await log.accept(name)
        await log.consume(name)
        await log.answer(name.upper(), {"raw": "x" * 1_000})
    assert await log.read(1_500) == (["B", "c", "C"], 3)


async def test_an_input_whose_text_is_gone_is_left_out(log: Log, database_url: str) -> None:
    await log.accept("one", "two")
    async with await AsyncConnection.connect(database_url, autocommit=True, options=AS_OWNER) as owner:
        await owner.execute("DELETE FROM session_events WHERE data->>'text' = 'one'")
    await log.consume("one")
    await log.answer("A")
    await log.consume("two")
    assert await log.read(ALL) == (["A", "two"], 1)


async def test_inputs_are_taken_in_order_and_within_a_budget(log: Log, database_url: str) -> None:
    await log.accept(*(f"{number:04}" for number in range(10)))
    async with await AsyncConnection.connect(database_url, autocommit=True, options=AS_OWNER) as owner:
        await owner.execute(
            _RUN, {"run": log.run_id, "session": log.session_id, "user": new_id(), "workspace": new_id()}
        )
    each = ENTRY_BYTES + 4
    for budget, expected in ((1, 1), (each, 1), (each + 1, 2), (3 * each, 3), (ALL, 10)):
        found = await store.waiting(log.connection, log.run_id, budget)
        assert [one.text for one in found] == [f"{number:04}" for number in range(expected)]
    taken = await store.waiting(log.connection, log.run_id, 3 * each)
    run = store.RunKey(log.run_id, log.session_id, new_id(), 1)
    await store.mark_taken(log.connection, run, taken, more=True)
    rest = await store.waiting(log.connection, log.run_id, ALL)
    assert [one.text for one in rest] == [f"{number:04}" for number in range(3, 10)]
    assert await run_columns(log) == (3, 28, False)
    await store.mark_taken(log.connection, run, rest, more=False)
    assert await run_columns(log) == (10, 0, True)
    with pytest.raises(Superseded):
        await store.mark_taken(log.connection, msgspec.structs.replace(run, attempt=2), [], more=False)


_RUN = """
WITH u AS (INSERT INTO users (id, email) VALUES (%(user)s, 'a@example.com')),
     w AS (INSERT INTO workspaces (id, name, owner_id) VALUES (%(workspace)s, 'w', %(user)s)),
     s AS (INSERT INTO sessions (id, workspace_id, created_by) VALUES (%(session)s, %(workspace)s, %(user)s))
INSERT INTO runs (id, session_id, workspace_id, state, attempt, first_input, last_input, consumed_through,
                  inputs_accepted, unconsumed_bytes)
SELECT %(run)s, %(session)s, %(workspace)s, 'running', 1, min(id), max(id), 0, 10, 40
FROM session_events WHERE session_id = %(session)s
"""


async def run_columns(log: Log) -> tuple[int, int, bool]:
    query = "SELECT inputs_consumed, unconsumed_bytes, consumed_through = last_input FROM runs WHERE id = %s"
    row = await (await log.connection.execute(query, (log.run_id,))).fetchone()
    assert row is not None
    return row[0], row[1], row[2]

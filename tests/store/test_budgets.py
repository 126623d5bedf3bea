"""Limits of cost and tokens: when they are reached, who stays below them, and how they are raised."""

from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.types.json import Jsonb

from quarterdeck.core.ids import new_id
from quarterdeck.db.database import Connection
from quarterdeck.models.model import AssistantTurn, Step
from quarterdeck.runs import lifecycle_store as lifecycle
from quarterdeck.runs.action_model import ActionState, LimitScope, ReachedLimit
from quarterdeck.workspaces import service as workspaces
from tests.world import AS_OWNER

COST, TOKENS = "max_cost_usd", "max_tokens"


class Budget:
    """A running run in a session of a workspace."""

    def __init__(self, connection: Connection, workspace_id: UUID) -> None:
        self.connection = connection
        self.workspace_id = workspace_id
        self.session_id, self.run_id = new_id(), new_id()

    async def execute(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        cursor = await self.connection.execute(statement.encode(), values)
        return [] if cursor.description is None else await cursor.fetchall()

    async def start(self) -> None:
        query = (
            "INSERT INTO sessions (id, workspace_id, created_by) SELECT %s, id, owner_id FROM workspaces WHERE id = %s"
        )
        await self.execute(query, self.session_id, self.workspace_id)
        await self.add_run(self.run_id, "running")

    async def add_run(self, run_id: UUID, state: str) -> None:
        query = """
        INSERT INTO runs (id, session_id, workspace_id, state, attempt, first_input, last_input, consumed_through,
                          api_key_id)
        VALUES (%s, %s, %s, %s, 1, 1, 1, 1, %s)
        """
        await self.execute(query, run_id, self.session_id, self.workspace_id, state, self.run_id)

    async def step(self, tokens: int, cost: str | None, model: str = "openai:gpt-5") -> None:
        """Half of the tokens are input, and half of those are cached."""
        half = tokens // 2
        spent = None if cost is None else Decimal(cost)
        step = Step(AssistantTurn("", []), half, tokens - half, cached_tokens=half // 2, cost_usd=spent)
        assert await lifecycle.record_step(self.connection, self.key(1), model, step, [], False)

    def key(self, attempt: int) -> lifecycle.RunKey:
        return lifecycle.RunKey(self.run_id, self.session_id, self.workspace_id, attempt)

    async def limit(self, scope: str, **values: float | None) -> None:
        if scope == "day":
            query = "UPDATE workspaces SET daily_max_cost_usd = %s, daily_max_tokens = %s WHERE id = %s"
            await self.execute(query, values.get(COST), values.get(TOKENS), self.workspace_id)
        else:
            query = "UPDATE sessions SET limits = limits || %s WHERE id = %s"
            await self.execute(query, Jsonb({scope: {COST: None, TOKENS: None} | values}), self.session_id)

    async def reached(self) -> tuple[str, str, float, float] | None:
        found = await lifecycle.reached_limit(self.connection, self.run_id)
        if found is None:
            return None
        reached, stopped = found.reached, found.stopped
        assert isinstance(reached.used, int if reached.limit == TOKENS else float)
        assert stopped is None
        return reached.scope, reached.limit, reached.maximum, reached.used

    async def action(self, scope: str, limit: str, state: str = "open", decision: str | None = None) -> UUID:
        action_id = new_id()
        query = """
        INSERT INTO actions (id, workspace_id, session_id, run_id, kind, state, reached, reason, expires_at,
                             resolved_at, resolution)
        VALUES (%s, %s, %s, %s, 'budget', %s, %s, 'x', now(), %s, %s)
        """
        reached = Jsonb({"scope": scope, "limit": limit, "maximum": 10.5, "used": 12})
        answer = None if decision is None else Jsonb({"decision": decision})
        closed = None if state == "open" else "now"
        ids = (action_id, self.workspace_id, self.session_id, self.run_id)
        await self.execute(query, *ids, state, reached, closed, answer)
        return action_id

    async def raise_limit(self, action_id: UUID, cost: float | None, tokens: int | None) -> Decimal | None:
        """None: it was raised. Otherwise what has been used."""
        ((used,),) = await self.execute("SELECT raise_limit(%s, %s::numeric, %s)", action_id, cost, tokens)
        return used  # type: ignore[no-any-return]


@pytest.fixture
async def budget(database_url: str) -> AsyncIterator[Budget]:
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True, options=AS_OWNER) as connection:
        made = Budget(connection, await workspaces.create_workspace(connection, "x", "o@example.com"))
        await made.start()
        yield made


async def test_a_step_is_added_to_the_run_and_to_its_day(budget: Budget) -> None:
    of_run = "SELECT steps, input_tokens, cached_tokens, output_tokens, cost_usd FROM runs WHERE id = %s"
    of_day = """
    SELECT day = (now() AT TIME ZONE 'UTC')::date, session_id, api_key_id, model, input_tokens, cached_tokens,
           output_tokens, cost_usd FROM run_usage WHERE run_id = %s ORDER BY day DESC
    """
    await budget.step(100, None)
    assert await budget.execute(of_run, budget.run_id) == [(1, 50, 25, 50, None)], "an unknown cost stays unknown"
    await budget.step(100, "0.25")
    await budget.step(100, None)
    await budget.step(100, "0.50")
    assert await budget.execute(of_run, budget.run_id) == [(4, 200, 100, 200, Decimal("0.75"))]
    row = (True, budget.session_id, budget.run_id, "openai:gpt-5", 200, 100, 200, Decimal("0.75"))
    assert await budget.execute(of_day, budget.run_id) == [row]
    # The next day.
    await budget.execute("UPDATE run_usage SET day = day - 1")
    await budget.execute("UPDATE daily_usage SET day = day - 1")
    await budget.step(100, None)
    today, yesterday = await budget.execute(of_day, budget.run_id)
    assert (today[4:], yesterday) == ((50, 25, 50, None), (False, *row[1:]))
    step = Step(AssistantTurn("", []), input_tokens=1, output_tokens=1)
    recorded = await lifecycle.record_step(budget.connection, budget.key(2), "x", step, [], False)
    assert recorded is None, "another attempt has the run"
    assert await budget.execute(of_run, budget.run_id) == [(5, 250, 125, 250, Decimal("0.75"))]
    assert (await budget.execute(of_day, budget.run_id))[0] == today
    sums = "input_tokens, cached_tokens, output_tokens, cost_usd"
    of_workspace = f"SELECT {sums} FROM daily_usage WHERE workspace_id = %s ORDER BY day DESC"
    assert await budget.execute(of_workspace, budget.workspace_id) == [today[4:], yesterday[4:]]


@pytest.mark.parametrize("scope", list(LimitScope))
async def test_a_limit_is_reached_and_raised(budget: Budget, scope: LimitScope) -> None:
    assert await budget.reached() is None
    await budget.limit(scope, max_cost_usd=0.5, max_tokens=100)
    await budget.step(99, "0.49")
    assert await budget.reached() is None
    await budget.step(1, None)
    assert await budget.reached() == (scope, TOKENS, 100, 100)
    tokens = await budget.action(scope, TOKENS)
    assert await budget.raise_limit(tokens, None, 100) == 100, "not more than what is used"
    assert await budget.raise_limit(tokens, 5.0, None) == 100, "the other limit"
    assert await budget.reached() == (scope, TOKENS, 100, 100)
    assert await budget.raise_limit(tokens, None, 101) is None
    assert await budget.reached() is None
    await budget.step(0, "0.02")
    assert await budget.reached() == (scope, COST, 0.5, 0.51)
    cost = await budget.action(scope, COST)
    assert await budget.raise_limit(cost, 0.51, None) == Decimal("0.51")
    assert await budget.raise_limit(cost, 2.5, 50) is None, "50 tokens are fewer than the limit, which stays"
    await budget.step(0, "1.98")
    assert await budget.reached() is None
    await budget.step(0, "0.01")
    assert await budget.reached() == (scope, COST, 2.5, 2.5)
    assert await budget.raise_limit(cost, 3, None) is None
    await budget.step(1, None)
    assert await budget.reached() == (scope, TOKENS, 101, 101)
    # Only the limit of this scope has changed.
    rows = await budget.execute(
        "SELECT r.max_tokens, s.limits->'session'->'max_tokens', s.revision, w.daily_max_tokens, w.revision"
        " FROM runs r JOIN sessions s ON s.id = r.session_id JOIN workspaces w ON w.id = r.workspace_id"
    )
    changed = {
        LimitScope.RUN: (101, None, 1, None, 1),
        LimitScope.SESSION: (None, 101, 4, None, 1),
        LimitScope.DAY: (None, None, 1, 101, 4),
    }
    assert rows == [changed[scope]]


async def test_a_raised_limit_does_not_follow_the_agent(budget: Budget) -> None:
    """Otherwise the next run would have the limit of the agent again."""
    agent_id = new_id()
    query = "INSERT INTO agents (id, workspace_id, name, created_by) SELECT %s, id, 'x', owner_id FROM workspaces"
    await budget.execute(query, agent_id)
    await budget.limit("session", max_tokens=100)
    await budget.execute("UPDATE sessions SET agent_id = %s, overrides = '{client_tools,model}'", agent_id)
    await budget.step(100, None)
    for tokens in (101, 102):
        assert await budget.raise_limit(await budget.action("session", TOKENS), None, tokens) is None
        [(overrides,)] = await budget.execute("SELECT overrides FROM sessions")
        assert overrides == ["client_tools", "limits", "model"]


async def test_a_limit_that_is_not_set_is_not_introduced(budget: Budget) -> None:
    for scope in LimitScope:
        await budget.limit(scope, max_tokens=10)
    await budget.step(10, "1")
    for scope in LimitScope:
        assert await budget.reached() == (scope, TOKENS, 10, 10), "in this order"
        assert await budget.raise_limit(await budget.action(scope, TOKENS), 1.5, 20) is None
    assert await budget.reached() is None
    await budget.step(0, "9")
    assert await budget.reached() is None, "no cost is limited"


async def test_what_counts_for_which_limit(budget: Budget) -> None:
    """A session has earlier runs, a workspace has other sessions, and days end at midnight UTC."""
    earlier = new_id()
    await budget.add_run(earlier, "succeeded")
    await budget.execute("UPDATE runs SET input_tokens = 60, cost_usd = 6 WHERE id = %s", earlier)
    other = Budget(budget.connection, budget.workspace_id)
    await other.start()
    await other.step(30, "3")
    stranger = Budget(budget.connection, await workspaces.create_workspace(budget.connection, "y", "p@example.com"))
    await stranger.start()
    await stranger.step(1000, "1000")
    await budget.step(10, "1")
    yesterday = "INSERT INTO daily_usage SELECT DISTINCT workspace_id, day - 1, 0, 500, 0, 500, 50 FROM daily_usage"
    await budget.execute(yesterday)
    for scope, tokens, cost in (("run", 10, 1), ("session", 70, 7), ("day", 40, 4)):
        await budget.limit(scope, max_tokens=tokens + 1, max_cost_usd=cost + 1)
        assert await budget.reached() is None
        await budget.limit(scope, max_tokens=tokens)
        assert await budget.reached() == (scope, TOKENS, tokens, tokens)
        await budget.limit(scope, max_cost_usd=cost, max_tokens=tokens)
        assert await budget.reached() == (scope, COST, cost, cost)
        await budget.limit(scope)
        assert await budget.reached() is None


async def test_a_cost_limit_does_not_hold_without_prices(budget: Budget) -> None:
    await budget.limit("run", max_cost_usd=0.000001)
    await budget.step(1_000_000, None)
    assert await budget.reached() is None
    await budget.step(1, "0.000001")
    assert await budget.reached() == ("run", COST, 0.000001, 0.000001)


@pytest.mark.parametrize(("state", "decision"), [("expired", None), ("resolved", "stop")])
async def test_a_stopped_run_stays_stopped(budget: Budget, state: str, decision: str | None) -> None:
    await budget.action("day", COST, "resolved", "raise")
    await budget.action("day", COST, "cancelled")
    assert await budget.reached() is None
    await budget.action("day", COST, state, decision)
    reached = ReachedLimit(LimitScope.DAY, "max_cost_usd", 10.5, 12)
    assert await lifecycle.reached_limit(budget.connection, budget.run_id) == lifecycle.StoppingLimit(
        reached, ActionState(state)
    )

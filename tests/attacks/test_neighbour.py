"""The frame of the attacks: a neighbour that is served passes, one that is not fails the check."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext

import pytest

from tests.attacks.neighbour import Comparison, Served, Tenants, attacked

KINDS = [
    *("healthz", "list sessions", "list skills", "list keys", "create session", "stream", "submit", "run"),
    *("read events", "cancel", "push", "download file", "download bundle", "diff"),
]


@pytest.mark.long
async def test_a_neighbour_of_nobody_is_served(tenants: Tenants) -> None:
    found = await attacked(tenants.neighbour, nullcontext(), rounds=2)
    found.check(rounds=2)
    assert sorted(found.attacked.seconds) == sorted(KINDS)
    assert [line.split("  ")[0] for line in found.lines()[1:]] == list(found.quiet.seconds)


@pytest.mark.long
async def test_what_is_refused_is_recorded_and_the_rest_goes_on(tenants: Tenants) -> None:
    world = tenants.neighbour.world

    @asynccontextmanager
    async def no_pushes() -> AsyncIterator[None]:
        await world.execute("UPDATE skills SET archived_at = now() WHERE workspace_id = %s", world.workspace_id)
        yield

    found = await attacked(tenants.neighbour, no_pushes(), rounds=1)
    assert (found.quiet.rounds, found.attacked.rounds) == (1, 0)
    assert [line.partition(" {")[0] for line in found.attacked.refusals] == ["push: 409"]
    assert len(found.attacked.seconds["run"]) == 1
    with pytest.raises(AssertionError, match="refused during the attack"):
        found.check(rounds=1)


def test_too_few_rounds_fail() -> None:
    with pytest.raises(AssertionError):
        Comparison(Served(rounds=5), Served(rounds=4)).check()

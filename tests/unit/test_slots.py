"""Slots that owners share."""

import asyncio

import pytest

from quarterdeck.core.slots import Slots


def test_one_owner_gets_only_its_part() -> None:
    slots = Slots(4, 2)
    assert [slots.take_now("a") for _ in range(3)] == [True, True, False]
    assert [slots.take_now("b") for _ in range(3)] == [True, True, False]
    assert not slots.take_now("c")
    slots.release("a")
    assert slots.take_now("c")


async def test_owner_with_its_part_does_not_delay_those_behind_it() -> None:
    slots = Slots(2, 1)
    assert slots.take_now("a")
    greedy = asyncio.create_task(_hold_briefly(slots, "a"))
    await asyncio.sleep(0)
    async with slots.hold("b", 60):
        assert not greedy.done()
    slots.release("a")
    await greedy


@pytest.mark.parametrize(("arrivals", "served"), [("abac", "abac"), ("aaaabbc", "aabcaba"), ("aaaabcb", "aabcaba")])
async def test_owners_that_wait_take_turns(arrivals: str, served: str) -> None:
    slots = Slots(1, 1)
    order: list[str] = []

    async def use(owner: str) -> None:
        async with slots.hold(owner, 60):
            order.append(owner)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        for owner in arrivals:
            tasks.create_task(use(owner))
    assert "".join(order) == served


async def test_owner_with_the_fewest_places_is_next() -> None:
    slots = Slots(4, 3)
    assert [slots.take_now(owner) for owner in "aaab"] == [True] * 4
    waiting = [asyncio.create_task(_hold_briefly(slots, owner)) for owner in "bbc"]
    await asyncio.sleep(0)
    slots.release("a")
    await asyncio.sleep(0)
    assert [task.done() for task in waiting] == [False, False, True], "b holds a slot, c holds none"
    for owner in "aab":
        slots.release(owner)
    await asyncio.gather(*waiting)


async def test_many_cancelled_waits_leave_all_places_free() -> None:
    slots = Slots(2, 1)
    assert slots.take_now("a")
    waiting = [asyncio.create_task(_hold_briefly(slots, "a")) for _ in range(5)]
    await asyncio.sleep(0)
    for task in waiting[:4]:
        task.cancel()
    slots.release("a")
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert results[4] is None
    assert [slots.take_now(owner) for owner in "ab"] == [True, True]


async def test_timeout_leaves_no_trace() -> None:
    slots = Slots(1, 1)
    assert slots.take_now("a")
    with pytest.raises(TimeoutError):
        await _hold_briefly(slots, "b", wait_seconds=0)
    slots.release("a")
    assert slots.take_now("b")


async def test_place_granted_at_the_moment_of_a_cancellation_is_given_back() -> None:
    slots = Slots(1, 1)
    assert slots.take_now("a")
    waiting = asyncio.create_task(_hold_briefly(slots, "b"))
    await asyncio.sleep(0)
    slots.release("a")
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert slots.take_now("c")


async def test_cancelled_waiter_is_passed_over() -> None:
    slots = Slots(1, 1)
    assert slots.take_now("a")
    leaving, staying = (asyncio.create_task(_hold_briefly(slots, "b")) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    slots.release("a")
    await staying
    assert slots.take_now("c")


async def _hold_briefly(slots: Slots, owner: str, wait_seconds: float = 60) -> None:
    async with slots.hold(owner, wait_seconds):
        pass

"""Places that owners share."""

import asyncio

import pytest

from quarterdeck.core.slots import Places


def test_one_owner_gets_only_its_part() -> None:
    places = Places(4, 2)
    assert [places.take_now("a") for _ in range(3)] == [True, True, False]
    assert [places.take_now("b") for _ in range(3)] == [True, True, False]
    assert not places.take_now("c")
    places.release("a")
    assert places.take_now("c")


async def test_owner_with_its_part_does_not_delay_those_behind_it() -> None:
    places = Places(2, 1)
    assert places.take_now("a")
    greedy = asyncio.create_task(_hold_briefly(places, "a"))
    await asyncio.sleep(0)
    async with places.hold("b", 60):
        assert not greedy.done()
    places.release("a")
    await greedy


@pytest.mark.parametrize(("arrivals", "served"), [("abac", "abac"), ("aaaabbc", "aabcaba"), ("aaaabcb", "aabcaba")])
async def test_owners_that_wait_take_turns(arrivals: str, served: str) -> None:
    places = Places(1, 1)
    order: list[str] = []

    async def use(owner: str) -> None:
        async with places.hold(owner, 60):
            order.append(owner)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        for owner in arrivals:
            tasks.create_task(use(owner))
    assert "".join(order) == served


async def test_owner_with_the_fewest_places_is_next() -> None:
    places = Places(4, 3)
    assert [places.take_now(owner) for owner in "aaab"] == [True] * 4
    waiting = [asyncio.create_task(_hold_briefly(places, owner)) for owner in "bbc"]
    await asyncio.sleep(0)
    places.release("a")
    await asyncio.sleep(0)
    assert [task.done() for task in waiting] == [False, False, True], "b holds a place, c holds none"
    for owner in "aab":
        places.release(owner)
    await asyncio.gather(*waiting)


async def test_many_cancelled_waits_leave_all_places_free() -> None:
    places = Places(2, 1)
    assert places.take_now("a")
    waiting = [asyncio.create_task(_hold_briefly(places, "a")) for _ in range(5)]
    await asyncio.sleep(0)
    for task in waiting[:4]:
        task.cancel()
    places.release("a")
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert results[4] is None
    assert [places.take_now(owner) for owner in "ab"] == [True, True]


async def test_timeout_leaves_no_trace() -> None:
    places = Places(1, 1)
    assert places.take_now("a")
    with pytest.raises(TimeoutError):
        await _hold_briefly(places, "b", wait_seconds=0)
    places.release("a")
    assert places.take_now("b")


async def test_place_granted_at_the_moment_of_a_cancellation_is_given_back() -> None:
    places = Places(1, 1)
    assert places.take_now("a")
    waiting = asyncio.create_task(_hold_briefly(places, "b"))
    await asyncio.sleep(0)
    places.release("a")
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert places.take_now("c")


async def test_cancelled_waiter_is_passed_over() -> None:
    places = Places(1, 1)
    assert places.take_now("a")
    leaving, staying = (asyncio.create_task(_hold_briefly(places, "b")) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    places.release("a")
    await staying
    assert places.take_now("c")


async def _hold_briefly(places: Places, owner: str, wait_seconds: float = 60) -> None:
    async with places.hold(owner, wait_seconds):
        pass

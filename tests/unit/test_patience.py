"""Waiting for something for a bounded time, beside those who cancel for reasons of their own."""

import asyncio

import pytest

from quarterdeck.patience import within


async def test_what_comes_in_time_is_returned_and_leaves_no_timer() -> None:
    assert await within(0.05, asyncio.sleep(0, "here")) == "here"
    # A timer that was left would cancel this.
    await asyncio.sleep(0.1)


async def test_what_fails_fails_the_same_way() -> None:
    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await within(5, fail())


async def test_what_does_not_come_is_given_up_and_the_task_goes_on() -> None:
    given_up = asyncio.Event()

    async def never() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            given_up.set()

    with pytest.raises(TimeoutError):
        await within(0.01, never())
    assert given_up.is_set()
    # Nothing is left of the cancellation.
    await asyncio.sleep(0)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_who_is_cancelled_by_others_is_cancelled() -> None:
    task = asyncio.create_task(within(5, asyncio.Event().wait()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_cancelled_by_others_at_the_same_moment_it_is_cancelled_too() -> None:
    task = asyncio.create_task(within(0, asyncio.Event().wait()))
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_soon(task.cancel)
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()

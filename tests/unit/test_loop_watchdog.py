"""The watchdog reports what blocks an event loop, and nothing else."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine

import pytest
import uvloop

from quarterdeck.core import metrics
from quarterdeck.core.loop_watchdog import watched_loop

LIMIT = 0.08
Loop = Callable[[Coroutine[object, object, None]], None]
# Each callback is short, and the loop is never idle. Says on stdout when it is at it.
STOPPED = """
import asyncio, time
from quarterdeck.core.logging import configure_logs
from quarterdeck.core.loop_watchdog import watched_loop

async def main():
    with watched_loop(0.08):
        print("begun", flush=True)
        for _ in range(60):
            time.sleep(0.01)
            await asyncio.sleep(0)

configure_logs("info")
asyncio.run(main())
"""


def busy(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def hold_interpreter_lock() -> None:
    until = time.thread_time() + 4 * LIMIT
    pattern, text = re.compile("(a*)*b"), "a" * 23
    while time.thread_time() < until:
        pattern.match(text)


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    monkeypatch.setattr(metrics, "loop_blocked", lambda kind, seconds: found.append((kind, seconds)))
    return found


async def watched(work: Callable[[], object]) -> None:
    with watched_loop(LIMIT):
        # Until the watchdog knows the loop.
        await asyncio.sleep(2 * LIMIT)
        if isinstance(waiting := work(), Coroutine):
            await waiting
        await asyncio.sleep(2 * LIMIT)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
@pytest.mark.parametrize(
    ("work", "kinds"),
    [
        (lambda: busy(4 * LIMIT), {"processor", "interpreter lock"}),
        (lambda: time.sleep(8 * LIMIT), {"waiting"}),
        (hold_interpreter_lock, {"processor", "interpreter lock"}),
    ],
    ids=["busy", "waiting", "lock"],
)
def test_what_blocks_is_reported(
    reported: list[tuple[str, float]],
    run: Loop,
    work: Callable[[], object],
    kinds: set[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    run(watched(work))
    assert reported
    assert {kind for kind, _ in reported} <= kinds
    assert all(seconds >= LIMIT for _, seconds in reported)
    fields = [vars(record)["fields"] for record in caplog.records]
    assert [one["kind"] for one in fields] == [kind for kind, _ in reported]
    if "processor" in kinds:
        assert any(" watched" in line for line in fields[0]["stack"])


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_loop_with_much_to_do_is_not_blocked(reported: list[tuple[str, float]], run: Loop) -> None:
    async def often() -> None:
        """One task, in many short steps."""
        for _ in range(30):
            busy(LIMIT / 20)
            await asyncio.sleep(0)

    async def many() -> None:
        await asyncio.gather(*(often() for _ in range(3)))

    run(watched(often))
    run(watched(many))
    assert reported == []


def test_a_stopped_process_is_not_blocked() -> None:
    with subprocess.Popen([sys.executable, "-c", STOPPED], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"begun\n"
        for _ in range(2):
            os.kill(process.pid, signal.SIGSTOP)
            time.sleep(0.3)
            os.kill(process.pid, signal.SIGCONT)
            time.sleep(0.1)
        assert [json.loads(line) for line in process.stderr.read().splitlines()] == []

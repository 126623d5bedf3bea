"""What a worker does: how soon it starts a run, how soon a run hears of an input, what many runs at once cost.

Times are those of the session's log, so they are PostgreSQL's clock alone.
"""

import asyncio
import random
import subprocess
from collections.abc import Iterable
from datetime import datetime, timedelta
from uuid import UUID

import psutil
from msgspec import Struct

from bench.figures import Figure, Measured, spread
from bench.provider import ANSWER_SECONDS, QUICKLY, provider
from bench.stage import Advance, Caller, Stage
from quarterdeck.events.model import EventBody, EventType
from quarterdeck.runs.model import Outcome, RunState

STARTS = 100
STEERS = 200
AT_ONCE = 200
TARGET_MS = 20.0
TARGET_MIB = 300.0
_INSTANT = {"MODEL_DEMO_PAUSE_SECONDS": 0}
_WARM_UP_RUNS = 10
# Long enough for the last of them to start before the first one ends.
_SLOW_STEP_SECONDS = 4
_MIB = 1024 * 1024


async def starting(stage: Stage, advance: Advance) -> Measured:
    """One run at a time, each in a fresh session, with an idle worker."""
    waited_ms: list[float] = []
    with stage.worker(**_INSTANT):
        async with stage.caller() as caller:
            await _warm_up(caller)
            for session_id in await caller.new_sessions(STARTS):
                # At no fixed place between two looks of whoever polls.
                await asyncio.sleep(random.uniform(0.01, 0.05))  # noqa: S311
                submitted = await caller.submit(session_id, "Go.")
                await asyncio.sleep(0.05)
                await caller.until_ended(submitted.run_id)
                events = await caller.log(session_id)
                accepted, started = _moment(events, EventType.INPUT_ACCEPTED), _moment(events, EventType.RUN_STARTED)
                waited_ms.append(_ms(started - accepted))
                advance()
    name = "input accepted → run started"
    return Measured(spread(name, waited_ms, target_ms=TARGET_MS), {name: waited_ms})


async def steering(stage: Stage, advance: Advance) -> Measured:
    """Inputs at odd moments to a run that takes step after step without a pause."""
    waited_ms: list[float] = []
    with stage.worker(**_INSTANT):
        async with stage.caller() as caller:
            await _warm_up(caller)
            while len(waited_ms) < STEERS:
                (session_id,) = await caller.new_sessions(1)
                texts = await _steer_until_it_ends(caller, session_id, STEERS - len(waited_ms), advance)
                waited_ms += _consumed_after_ms(await caller.log(session_id), texts)
    name = "input steered → consumed"
    return Measured(spread(name, waited_ms, target_ms=TARGET_MS), {name: waited_ms})


async def _steer_until_it_ends(caller: Caller, session_id: UUID, most: int, advance: Advance) -> set[str]:
    """The texts that steered."""
    first = await caller.submit(session_id, "demo: steps 99")
    await caller.until_started(first.run_id)
    texts: set[str] = set()
    while len(texts) < most:
        await asyncio.sleep(random.uniform(0.005, 0.025))  # noqa: S311
        text = f"Mind this too: {len(texts)}."
        submitted = await caller.submit(session_id, text)
        if submitted.outcome is not Outcome.STEERED:
            break
        texts.add(text)
        advance()
    await caller.until_ended(first.run_id)
    return texts


async def many_at_once(stage: Stage, advance: Advance) -> Measured:
    """AT_ONCE runs of one workspace in one worker process, in two slow steps each of the demo model."""
    crowd = await _crowd(stage, f"demo: slow {_SLOW_STEP_SECONDS}", advance)
    return Measured(
        [
            Figure(f"{AT_ONCE} runs in a worker, peak memory", crowd.peak_mib, "MiB", TARGET_MIB),
            Figure("  … before they came", crowd.idle_mib, "MiB"),
            *crowd.figures(2 * _SLOW_STEP_SECONDS),
        ]
    )


async def many_at_a_provider(stage: Stage, advance: Advance) -> Measured:
    """The same over HTTP with a provider's library, one streamed answer each."""
    async with provider() as url:
        crowd = await _crowd(stage, "Go.", advance, model="openai-chat:bench", MODEL_OPENAI_BASE_URL=url)
    return Measured(
        [
            Figure(f"{AT_ONCE} runs over HTTP, peak memory", crowd.peak_mib, "MiB", TARGET_MIB),
            *crowd.figures(ANSWER_SECONDS),
        ]
    )


class _Crowd(Struct, frozen=True):
    idle_mib: float
    peak_mib: float
    accepted: list[datetime]
    started: list[datetime]
    succeeded: list[datetime]

    def figures(self, model_seconds: float) -> list[Figure]:
        first = min(self.accepted)
        return [
            Figure("  … at the same time", _most_at_once(self.started, self.succeeded), "runs"),
            Figure("  … until all have started", _ms(max(self.started) - first) / 1000, "s"),
            Figure("  … until all have succeeded", _ms(max(self.succeeded) - first) / 1000, "s"),
            Figure("  … of which the model took", model_seconds, "s"),
        ]


async def _crowd(stage: Stage, text: str, advance: Advance, *, model: str | None = None, **settings: object) -> _Crowd:
    settings |= {"RUN_ACTIVE_PER_WORKSPACE": AT_ONCE, "WORKER_CONCURRENCY": AT_ONCE}
    async with stage.caller() as caller:
        sessions = await caller.new_sessions(AT_ONCE, model)
        with stage.worker(**settings) as process:
            await _warm_up(caller, model)
            memory = _Memory(process)
            idle_mib = memory.peak_mib
            watching = asyncio.create_task(memory.watch())
            runs = [(await caller.submit(session_id, text)).run_id for session_id in sessions]
            for run_id in runs:
                ended = await caller.until_ended(run_id)
                assert ended.state is RunState.SUCCEEDED, ended.failure
                advance()
            watching.cancel()
        logs = [await caller.log(session_id) for session_id in sessions]
    return _Crowd(
        idle_mib,
        memory.peak_mib,
        [_moment(events, EventType.INPUT_ACCEPTED) for events in logs],
        [_moment(events, EventType.RUN_STARTED) for events in logs],
        [_moment(events, EventType.RUN_SUCCEEDED) for events in logs],
    )


class _Memory:
    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = psutil.Process(process.pid)
        self.peak_mib = self._now_mib()

    async def watch(self) -> None:
        while True:
            self.peak_mib = max(self.peak_mib, self._now_mib())
            await asyncio.sleep(0.05)

    def _now_mib(self) -> float:
        resident_bytes: int = self._process.memory_info().rss
        return resident_bytes / _MIB


async def _warm_up(caller: Caller, model: str | None = None) -> None:
    """The first run also waits for the worker to be there, and for the library of its provider."""
    for session_id in await caller.new_sessions(_WARM_UP_RUNS, model):
        await caller.until_ended((await caller.submit(session_id, QUICKLY)).run_id)


def _consumed_after_ms(events: Iterable[EventBody], texts: set[str]) -> list[float]:
    accepted: dict[str, datetime] = {}
    waited_ms: list[float] = []
    for event in events:
        if event.type is EventType.INPUT_ACCEPTED and event.data["text"] in texts:
            accepted[event.data["input_id"]] = event.created_at
        elif event.type is EventType.INPUT_CONSUMED and event.data["input_id"] in accepted:
            waited_ms.append(_ms(event.created_at - accepted[event.data["input_id"]]))
    assert len(waited_ms) == len(texts), "an input was lost"
    return waited_ms


def _moment(events: Iterable[EventBody], kind: EventType) -> datetime:
    return next(event.created_at for event in events if event.type is kind)


def _most_at_once(started: Iterable[datetime], ended: Iterable[datetime]) -> int:
    changes = sorted([(moment, 1) for moment in started] + [(moment, -1) for moment in ended])
    now = most = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


def _ms(span: timedelta) -> float:
    return span / timedelta(milliseconds=1)

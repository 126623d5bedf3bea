"""The promises, tried on a running system: inputs at bad moments, a kill, a key used twice, two turns at once."""

import asyncio
import random
from collections.abc import Mapping
from contextlib import suppress
from time import monotonic
from uuid import uuid4

import httpx

from bench.peers.model import Mark, Model, marks_in
from bench.peers.system import System
from bench.peers.verdicts import Finding, Reuse, Turns, honest_about_keys, kept, one_at_a_time

SESSIONS = 8
_TURNS = 20
_THINKING_SECONDS = 0.1
_PAIR_THINKING_SECONDS = 0.6
# Longer than any of the leases, so that what has not come by then does not come.
_QUIET_SECONDS = 15.0
# Acknowledged turns, and then the kill.
_ENOUGH = 60
_PATIENCE_SECONDS = 20.0


async def kept_when_busy(system: System, model: Model) -> Finding:
    """Turns in the middle of a run and in the instant in which one ends."""
    model.seconds = _THINKING_SECONDS
    sessions = await _sessions(system, "busy", SESSIONS)
    trial = _Trial(system, model, sessions)

    async def talk(name: str) -> None:
        for number in range(_TURNS):
            await trial.send(Mark(name, number))
            if number % 2:
                await model.until_it_ends(name, 4 * _THINKING_SECONDS)
                await asyncio.sleep(random.uniform(0, 0.008))  # noqa: S311
            else:
                await asyncio.sleep(random.uniform(0, _THINKING_SECONDS))  # noqa: S311

    await asyncio.gather(*map(talk, sessions))
    return kept(await trial.settled())


async def kept_when_killed(system: System, model: Model) -> Finding:
    """All its processes die under load and start again. What it stands on, PostgreSQL or Redis, lives on."""
    model.seconds = _THINKING_SECONDS
    sessions = await _sessions(system, "killed", SESSIONS)
    trial = _Trial(system, model, sessions)

    async def talk(name: str) -> None:
        for number in range(1000):
            try:
                await trial.send(Mark(name, number))
            except httpx.TransportError:
                return
            await asyncio.sleep(random.uniform(0.02, 0.08))  # noqa: S311

    talking = asyncio.gather(*map(talk, sessions))
    with suppress(TimeoutError):
        await asyncio.wait_for(trial.enough.wait(), _PATIENCE_SECONDS)
    system.kill()
    await talking
    await system.start()
    return kept(await trial.settled())


async def keys_are_honest(system: System, model: Model) -> Finding:
    model.seconds = 0.0
    sessions = await _sessions(system, "key", 1)
    trial = _Trial(system, model, sessions)
    key = uuid4().hex
    first, other = Mark("key0", 1), Mark("key0", 2)
    answers = [await trial.send(mark, key) for mark in (first, first, other)]
    # For a turn that ought not to run nobody can wait until it has.
    await asyncio.sleep(3)
    return honest_about_keys(
        Reuse(
            [answer.status_code for answer in answers],
            [_said(system, answer) for answer in answers],
            model.times_asked(first),
            model.times_asked(other),
        )
    )


async def runs_one_at_a_time(system: System, model: Model) -> Finding:
    """Two turns for one session in the same instant, in several sessions."""
    model.seconds = _PAIR_THINKING_SECONDS
    sessions = await _sessions(system, "pair", SESSIONS)
    trial = _Trial(system, model, sessions)
    pairs = [Mark(name, number) for name in sessions for number in (1, 2)]
    answers = await asyncio.gather(*map(trial.send, pairs))
    turns = await trial.settled()
    return one_at_a_time(model.calls, turns, [_said(system, answer) for answer in answers])


class _Trial:
    """Turns for some sessions, and what became of them."""

    def __init__(self, system: System, model: Model, sessions: Mapping[str, str]) -> None:
        self._system = system
        self._model = model
        self._sessions = sessions
        self._acknowledged: set[Mark] = set()
        self._refused = 0
        self.enough = asyncio.Event()

    async def send(self, mark: Mark, key: str | None = None) -> httpx.Response:
        text = f"Please look at the release notes {mark} and tell me what is missing."
        answer = await self._system.send(self._sessions[mark.session], text, key)
        if answer.is_success:
            self._acknowledged.add(mark)
            if len(self._acknowledged) >= _ENOUGH:
                self.enough.set()
        else:
            self._refused += 1
        return answer

    async def settled(self) -> Turns:
        """When everything has come, or nothing more does."""
        last, since = (-1, -1), monotonic()
        while True:
            shown = {mark for session in self._sessions.values() for mark in await self._shown(session)}
            turns = Turns(self._acknowledged, self._refused, self._model.seen() & self._acknowledged, shown)
            now = len(turns.answered), len(turns.shown)
            if now != last:
                last, since = now, monotonic()
            if turns.complete or monotonic() - since > _QUIET_SECONDS:
                return turns
            await asyncio.sleep(0.25)

    async def _shown(self, session: str) -> list[Mark]:
        try:
            return marks_in(await self._system.record(session))
        except httpx.HTTPError:
            # A session that it no longer knows, or no answer while it is recovering.
            return []


async def _sessions(system: System, kind: str, count: int) -> dict[str, str]:
    """By their names here."""
    return {f"{kind}{number}": session for number, session in enumerate(await system.new_sessions(count))}


def _said(system: System, answer: httpx.Response) -> str:
    return system.said(answer) if answer.is_success else f"refused with {answer.status_code}"

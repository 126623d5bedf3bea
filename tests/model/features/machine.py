"""Runs sequences, shrinks one that breaks a promise, and writes it down as a script."""

import time

from msgspec import Struct

from tests.model.features import promises
from tests.model.features.draw import Draw
from tests.model.features.service import COMPACTIONS, CONTEXTS, Service
from tests.model.features.steps import Answer, OfAgent, Resolve, Step
from tests.model.features.world import Broken, World

# Rounds until every run of a sequence has ended, at its end.
_ROUNDS = 60
# What a person would answer to let a run go on.
_ENDINGS = {"budget": "raise", "tool_result": "small", "approval": "allow", "unknown_outcome": "done"}


class Sequence(Struct, frozen=True):
    context: int
    compaction: str
    steps: list[Step]


class Failure(Struct, frozen=True):
    seed: str
    sequence: Sequence
    promise: str
    reason: str
    script: list[str]


class Machine:
    def __init__(self, service: Service) -> None:
        self._service = service
        self.sequences = 0
        self.steps = 0

    async def run(self, seed: str) -> Failure | None:
        """One sequence, drawn from this seed."""
        draw = Draw(seed)
        context, compaction = draw.settings(CONTEXTS, COMPACTIONS)
        sequence = Sequence(context, compaction, [])
        world = await self._begin(sequence)
        self.sequences += 1
        try:
            for _ in range(draw.length()):
                step = draw.step(world)
                sequence.steps.append(step)
                await self._perform(world, step)
            await self._finish(world)
        except Broken as broken:
            return Failure(seed, sequence, broken.promise, broken.reason, world.script)
        finally:
            await self._service.end()
        return None

    async def repeat(self, sequence: Sequence) -> tuple[Broken | None, World]:
        world = await self._begin(sequence)
        try:
            for step in sequence.steps:
                await self._perform(world, step)
            await self._finish(world)
        except Broken as broken:
            return broken, world
        finally:
            await self._service.end()
        return None, world

    async def shrink(self, failure: Failure, seconds: float = 60.0) -> Failure:
        """Leaves out steps while the same promise is broken: first many at once, then single ones."""
        deadline = time.monotonic() + seconds
        size = max(1, len(failure.sequence.steps) // 2)
        while True:
            at, was_shorter = 0, False
            while at < len(failure.sequence.steps) and time.monotonic() < deadline:
                steps = failure.sequence.steps
                shorter = Sequence(
                    failure.sequence.context, failure.sequence.compaction, steps[:at] + steps[at + size :]
                )
                broken, world = await self.repeat(shorter)
                if broken is not None and broken.promise == failure.promise:
                    failure = Failure(failure.seed, shorter, broken.promise, broken.reason, world.script)
                    was_shorter = True
                else:
                    at += size
            if (size == 1 and not was_shorter) or time.monotonic() > deadline:
                return failure
            size = max(1, size // 2)

    async def _begin(self, sequence: Sequence) -> World:
        key = await self._service.begin(sequence.context, sequence.compaction)
        return World(self._service, key)

    async def _perform(self, world: World, step: Step) -> bool:
        self.steps += 1
        if not await step.perform(world):
            return False
        waits_at_limit = any(one["kind"] == "budget" for session in world.sessions for one in session.open_actions)
        try:
            await self._service.settle(release=waits_at_limit)
        except Exception as fault:
            raise Broken("the_worker_does_its_work", f"{type(fault).__name__}: {fault}") from fault
        # Agents change what all sessions show.
        for session in world.sessions if isinstance(step, OfAgent) or world.focus is None else [world.focus]:
            await world.read(session, settings=step.changes_settings)
        promises.check(world)
        return True

    async def _finish(self, world: World) -> None:
        """Lets every run end."""
        for _ in range(_ROUNDS):
            step = _next_ending(world)
            if step is None:
                break
            await self._perform(world, step)
        else:
            raise Broken("every_run_ends", "runs go on and on")
        for session in world.sessions:
            await world.read(session)
        promises.check(world)


def _next_ending(world: World) -> Step | None:
    for at, session in enumerate(world.sessions):
        if session.is_deleted:
            continue
        if session.open_actions:
            kind = session.open_actions[0]["kind"]
            return Resolve(at, kind, _ENDINGS[kind], more=100_000)
        if world.question(session) is not None:
            return Answer(at)
    return None

"""One attempt at a run: take inputs, ask the model, carry out its calls, until it has nothing more to do.

What to do next is read off the conversation each time, so going on after a crash is the same as going on.
"""

import asyncio
from collections.abc import Sequence
from uuid import UUID

from quarterdeck.agents.model import ModelFailure, Turn, UserTurn
from quarterdeck.conversations.runs import lifecycle
from quarterdeck.conversations.runs.lifecycle import Lease, Superseded
from quarterdeck.conversations.runs.model import Input
from quarterdeck.core.errors import ServiceError
from quarterdeck.core.logging import fields, log
from quarterdeck.worker import journal
from quarterdeck.worker.agent import Agent, load_agent
from quarterdeck.worker.deltas import Deltas
from quarterdeck.worker.parts import WorkerParts

_FIRST_PAUSE_SECONDS = 0.2
_LAST_PAUSE_SECONDS = 5.0


async def drive_run(parts: WorkerParts, run_id: UUID) -> None:
    """Until the run is done, over as many attempts as the database needs to be reachable again."""
    pause_seconds = _FIRST_PAUSE_SECONDS
    again = False
    while True:
        try:
            return await _drive_once(parts, run_id, again=again)
        except ServiceError as fault:
            log.warning("run will be taken up again", exc_info=fault, extra=fields(run_id=run_id))
        await asyncio.sleep(pause_seconds)
        pause_seconds, again = min(2 * pause_seconds, _LAST_PAUSE_SECONDS), True


async def _drive_once(parts: WorkerParts, run_id: UUID, *, again: bool) -> None:
    lease = await lifecycle.begin(parts.database, run_id, parts.settings.run, again=again)
    if lease is None:
        return
    try:
        await _attempt(parts, lease)
    except Superseded:
        log.info("run went on without this attempt", extra=fields(run_id=run_id, attempt=lease.attempt))
    except asyncio.CancelledError:
        # Not awaited as a part of this task, which is being cancelled: the hand-over must get through.
        await asyncio.shield(_hand_back(parts, lease))
        raise


async def _attempt(parts: WorkerParts, lease: Lease) -> None:
    settings = parts.settings.run
    try:
        async with asyncio.timeout(settings.max_seconds - lease.seconds):
            await _Attempt(parts, lease).run()
    except ModelFailure as failure:
        await lifecycle.fail(parts.database, lease, str(failure))
    except TimeoutError:
        await lifecycle.fail(parts.database, lease, f"The run took longer than {settings.max_seconds:g} seconds.")


async def _hand_back(parts: WorkerParts, lease: Lease) -> None:
    try:
        await lifecycle.hand_back(parts.database, lease, "Its worker was stopped.")
    except Superseded:
        log.info("run was cancelled", extra=fields(run_id=lease.run_id))
    except ServiceError as fault:
        # Raised, it would take the place of the cancellation, and the worker would go on. The sweep finds the run.
        log.warning("run could not be handed back", exc_info=fault, extra=fields(run_id=lease.run_id))


class _Attempt:
    def __init__(self, parts: WorkerParts, lease: Lease) -> None:
        self._parts = parts
        self._lease = lease
        self._steps = lease.steps
        self._tokens = lease.tokens
        self._turns: list[Turn] = []

    async def run(self) -> None:
        agent = await load_agent(self._parts, self._lease)
        self._turns = await self._load_turns()
        while True:
            match journal.next_action(self._turns):
                case journal.TOOLS:
                    await self._carry_out_calls(agent)
                case journal.MODEL:
                    await self._ask_model(agent)
                case _:
                    if await lifecycle.finish(self._parts.database, self._lease):
                        return
                    await self._take_inputs()

    async def _load_turns(self) -> list[Turn]:
        entries = await lifecycle.entries(self._parts.database, self._lease)
        return journal.turns_of(entries, self._lease.run_id)

    async def _take_inputs(self) -> None:
        # First: an input that this run could not show to its model any more is left to the next one.
        self._check_limits()
        inputs: Sequence[Input] = await lifecycle.take(self._parts.database, self._lease, self._steps + 1)
        self._turns += [UserTurn(one.text, self._lease.run_id) for one in inputs]

    async def _ask_model(self, agent: Agent) -> None:
        await self._take_inputs()
        async with Deltas(self._parts, self._lease) as deltas:
            step = await agent.step(self._turns, deltas.add)
        await lifecycle.record(
            self._parts.database,
            self._lease,
            [*agent.notices(), *journal.entries_of(step)],
            steps=1,
            input_tokens=step.input_tokens,
            output_tokens=step.output_tokens,
        )
        self._turns.append(step.turn)
        self._steps += 1
        self._tokens += step.input_tokens + step.output_tokens

    async def _carry_out_calls(self, agent: Agent) -> None:
        """One entry a result: a crash between two calls repeats only the one whose result was not stored."""
        for call in journal.open_calls(self._turns):
            result = await agent.call(call)
            await lifecycle.record(self._parts.database, self._lease, [journal.entry_of(result)])
            journal.add_result(self._turns, result)

    def _check_limits(self) -> None:
        settings = self._parts.settings.run
        if self._steps >= settings.max_steps:
            raise ModelFailure(f"The run needed more than {settings.max_steps} steps.")
        if self._tokens >= settings.max_tokens:
            raise ModelFailure(f"The run used more than {settings.max_tokens} tokens.")

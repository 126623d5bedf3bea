"""Drives a run: take inputs, ask the model, execute its tool calls, until the run is finished or waits.

The next step is derived from the conversation each time, so resuming after a crash needs no special case.
"""

import asyncio
import time
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar
from uuid import UUID

from quarterdeck.core import errors, metrics, tracing
from quarterdeck.core.errors import ServiceError
from quarterdeck.core.logging import fields, log
from quarterdeck.core.settings import ActionSettings, RunSettings, WorkerSettings
from quarterdeck.db.database import Connection, Database
from quarterdeck.events.log import lock_session
from quarterdeck.events.model import NewEvent
from quarterdeck.models.catalog import ModelCatalog
from quarterdeck.models.context import BYTES_PER_TOKEN, is_summary, newest_turns, summary_turn
from quarterdeck.models.model import (
    Batches,
    ContentRefused,
    ContextExceeded,
    CutOff,
    ModelFailure,
    QuotaExceeded,
    Step,
    TransientFailure,
    Turn,
    UserTurn,
)
from quarterdeck.runs import calls, lifecycle, model_batches
from quarterdeck.runs.action_model import ActionKind, ActionState, LimitScope, NewAction, ReachedLimit
from quarterdeck.runs.lifecycle import Lease, LimitReached, SetupChanged
from quarterdeck.runs.model import RunSetup, Superseded
from quarterdeck.runs.model_batches import BatchAsked
from quarterdeck.runs.model_pauses import ModelPaused, ModelPauses
from quarterdeck.sessions import service as sessions
from quarterdeck.tools.model import ToolRule
from quarterdeck.worker import journal
from quarterdeck.worker.agent import Agent, AgentLoader, Compaction
from quarterdeck.worker.deltas import DeltaSender
from quarterdeck.worker.run_spans import attempt_span, job_span
from quarterdeck.worker.tool_runner import ToolRunner

# What a run does at a limit of cost or tokens: wait for an answer, or end. Pure functions, no I/O.

_SCOPES = {
    LimitScope.RUN: "for this run",
    LimitScope.SESSION: "for this session",
    LimitScope.DAY: "per day for this workspace",
}


def budget_action(reached: ReachedLimit) -> NewAction:
    reason = f"Reached the limit of {_limit(reached)}: {reached.amount(reached.used)} used."
    return NewAction(kind=ActionKind.BUDGET, reason=reason, reached=reached)


def stop_reason(reached: ReachedLimit, stopped: ActionState) -> str:
    reason = f"Stopped at the limit of {_limit(reached)}"
    return f"{reason}: nobody raised it in time." if stopped is ActionState.EXPIRED else f"{reason}."


def _limit(reached: ReachedLimit) -> str:
    return f"{reached.amount(reached.maximum)} {_SCOPES[reached.scope]}"


Result = TypeVar("Result")

_MIN_PAUSE_SECONDS = 0.2
_MAX_PAUSE_SECONDS = 5.0


# Each time the session has been changed meanwhile, or another worker has begun the run.
_BEGIN_TRIES = 10


async def begin_attempt(
    database: Database, models: ModelCatalog, run_id: UUID, settings: RunSettings, *, again: bool
) -> Lease | None:
    """As `lifecycle.begin`. The first attempt makes the setup of the run, which all its attempts keep."""
    for _ in range(_BEGIN_TRIES):
        found = await lifecycle.find(database, run_id)
        if found is None:
            return None
        setup = found.setup or await _new_setup(database, models, found.session_id, follows_agent=found.follows_agent)
        with suppress(SetupChanged):
            return await lifecycle.begin(database, run_id, found, setup, settings, again=again)
    raise errors.locked()


async def _new_setup(database: Database, models: ModelCatalog, session_id: UUID, *, follows_agent: bool) -> RunSetup:
    async def read(connection: Connection) -> RunSetup:
        return await sessions.run_setup(connection, models, session_id)

    async def follow_agent(connection: Connection) -> RunSetup:
        # The session stores what it has from its agent.
        await lock_session(connection, session_id)
        return await read(connection)

    return await (database.transaction(follow_agent, repeatable=True) if follows_agent else database.read(read))


class Leaving(Exception):
    """The run leaves its slot, because another workspace needs it."""


class _ModelUnavailable(Exception):
    """Another model of the run is asked."""


class RunDriver:
    def __init__(
        self,
        database: Database,
        agents: AgentLoader,
        settings: RunSettings,
        actions: ActionSettings,
        worker: WorkerSettings,
        pauses: ModelPauses,
        sandbox_rule: ToolRule = ToolRule.ALLOW,
    ) -> None:
        self.database = database
        self.agents = agents
        self.settings = settings
        self.actions = actions
        self.sandbox_rule = sandbox_rule
        self.pauses = pauses
        self.deltas = DeltaSender(database, settings.delta_seconds)
        self._worker = worker
        self._driven = 0
        # Two of one run, if this worker was paused and taken for dead and has then fetched the run again.
        self._attempts: set[_Attempt] = set()

    @property
    def is_busy(self) -> bool:
        return self._driven > 0

    @property
    def is_full(self) -> bool:
        return self._driven >= self._worker.concurrency

    def leave(self, run_ids: Iterable[UUID]) -> None:
        """Runs that this worker does not drive are passed over."""
        leaving = set(run_ids)
        for attempt in self._attempts:
            if attempt.run_id in leaving:
                attempt.leave()

    async def drive(self, run_id: UUID) -> bool:
        """Returns when the run has ended or waits, or another worker has it. True: its job was deleted with its end."""
        self._driven += 1
        try:
            with job_span(run_id, await self._traceparent(run_id)):
                return await self._drive(run_id)
        finally:
            self._driven -= 1

    async def _traceparent(self, run_id: UUID) -> str | None:
        if not tracing.is_on():
            return None
        try:
            return await lifecycle.traceparent(self.database, run_id)
        except ServiceError as fault:
            log.warning("the run is not part of the trace of its request", exc_info=fault, extra=fields(run_id=run_id))
            return None

    async def _drive(self, run_id: UUID) -> bool:
        """Errors of the database lead to another attempt."""
        pause_seconds = _MIN_PAUSE_SECONDS
        again = False
        while True:
            try:
                return await self._attempt(run_id, again=again)
            except ServiceError as fault:
                log.warning("the attempt failed and will be repeated", exc_info=fault, extra=fields(run_id=run_id))
            await asyncio.sleep(pause_seconds)
            pause_seconds, again = min(2 * pause_seconds, _MAX_PAUSE_SECONDS), True

    async def _attempt(self, run_id: UUID, *, again: bool) -> bool:
        lease = await begin_attempt(self.database, self.agents.catalog, run_id, self.settings, again=again)
        if lease is None:
            return False
        try:
            return await self._run(lease)
        except Superseded:
            log.info("the run went on without this attempt", extra=fields(run_id=run_id, attempt=lease.attempt))
        except Leaving:
            pause_seconds = self._worker.lending_pause_seconds
            await asyncio.shield(self._hand_back(lease, "Another workspace needed its slot.", pause_seconds))
        except ModelPaused as paused:
            await asyncio.shield(self._hand_back(lease, str(paused), waits_for_models=paused.models))
        except BatchAsked as asked:
            await asyncio.shield(self._hand_back(lease, str(asked), asked=asked))
        except asyncio.CancelledError:
            # Shielded: this task is being cancelled, and the hand-back must complete.
            await asyncio.shield(self._hand_back(lease, "Its worker was stopped."))
            raise
        return False

    async def _run(self, lease: Lease) -> bool:
        """Whether the run has succeeded."""
        attempt = _Attempt(self, lease)
        self._attempts.add(attempt)
        try:
            with attempt_span(lease, expected=(BatchAsked, Leaving, LimitReached, ModelPaused, Superseded)):
                async with asyncio.timeout(self.settings.max_seconds - lease.seconds):
                    return await attempt.run()
        except ModelFailure as failure:
            refused = isinstance(failure, ContentRefused)
            await lifecycle.fail(self.database, lease, str(failure), refused=refused)
        except TimeoutError:
            await lifecycle.fail(self.database, lease, lifecycle.overdue(self.settings))
        except LimitReached as fault:
            reached, stopped = fault.limit.reached, fault.limit.stopped
            if stopped is None:
                await lifecycle.wait(self.database, lease, [budget_action(reached)], self.actions)
            else:
                await lifecycle.fail(self.database, lease, stop_reason(reached, stopped))
        finally:
            self._attempts.remove(attempt)
        return False

    async def _hand_back(
        self,
        lease: Lease,
        reason: str,
        pause_seconds: float = 0,
        waits_for_models: list[str] | None = None,
        asked: BatchAsked | None = None,
    ) -> None:
        try:
            if asked is not None:
                await model_batches.ask(self.database, lease, asked)
                return
            await lifecycle.hand_back(
                self.database, lease, reason, pause_seconds=pause_seconds, waits_for_models=waits_for_models
            )
        except Superseded:
            log.info("the run was cancelled", extra=fields(run_id=lease.run_id))
        except ServiceError as fault:
            # Not raised: it would replace the cancellation, and the worker would not stop. Recovery finds the run.
            log.warning("the run could not be handed back", exc_info=fault, extra=fields(run_id=lease.run_id))


class _Attempt:
    def __init__(self, driver: RunDriver, lease: Lease) -> None:
        self._database = driver.database
        self._agents = driver.agents
        self._settings = settings = driver.settings
        self._actions = driver.actions
        self._sandbox_rule = driver.sandbox_rule
        self._pauses = driver.pauses
        self._deltas = driver.deltas
        self._lease = lease
        self.run_id = lease.run_id
        # The model that the run asked last, according to its log.
        self._model = lease.model
        # Why the last request failed, if it is to be made again.
        self._failure: str | None = None
        self._steps = lease.steps
        self._tokens = lease.tokens
        # The newest turns, and the number of older ones that are not kept in memory.
        self._turns: list[Turn] = []
        self._left_out = 0
        # How many turns the summary at their start stands for.
        self._summarised = 0
        # How many bytes of inputs can be taken before the next step.
        self._input_budget_bytes = settings.step_input_bytes - lease.input_bytes
        # Inputs need not be looked for again before the first step. Unless its agent takes seconds to load.
        self._has_taken_inputs = lease.steps == 0 and not (lease.setup.mcp_servers or lease.setup.skills)
        self._is_leaving = False
        # The time limit of the model request that is under way. It has no limit until the run is asked to leave.
        self._request_limit: asyncio.Timeout | None = None

    def leave(self) -> None:
        """Interrupts a model request, or prevents the next one. A tool call is completed, since it may have effects."""
        if self._is_leaving:
            return
        self._is_leaving = True
        if self._request_limit is not None:
            self._request_limit.reschedule(asyncio.get_running_loop().time())

    async def run(self) -> bool:
        """True: the run has succeeded. False: it waits."""
        agent = await self._agents.load(self._lease)
        try:
            return await self._drive(agent)
        finally:
            agent.close()

    async def _drive(self, agent: Agent) -> bool:
        await self._read_log(agent)
        while True:
            self._check_answer()
            match journal.next_step(self._turns):
                case journal.TOOLS:
                    if not await self._call_tools(agent):
                        return False
                case journal.MODEL:
                    agent.check_corrections(self._turns, self.run_id)
                    if await self._ask_model(agent):
                        return True
                case _:
                    if await lifecycle.finish(self._database, self._lease):
                        return True
                    await self._take_inputs(agent)

    async def _read_log(self, agent: Agent) -> None:
        budget_bytes = agent.conversation_tokens * BYTES_PER_TOKEN
        entries, self._left_out = await lifecycle.entries(self._database, self._lease, budget_bytes)
        self._turns = journal.turns_of(entries, self.run_id)
        self._summarised = journal.summarised_turns(entries)

    async def _take_inputs(self, agent: Agent) -> None:
        # Checked before inputs are taken: an input that this run can no longer process is left to the next run.
        self._check_limits()
        if self._has_taken_inputs:
            self._has_taken_inputs = False
            if self._lease.reached is not None:
                raise LimitReached(self._lease.reached)
            return
        inputs = await lifecycle.take(self._database, self._lease, self._steps + 1, self._input_budget_bytes)
        self._input_budget_bytes -= lifecycle.taken_bytes(inputs)
        if any(taken.copy_of is not None for taken in inputs):
            # Whether the model sees them depends on the inputs that they repeat.
            await self._read_log(agent)
            return
        self._turns += [UserTurn(taken.text, self.run_id, taken.attachments, input_id=taken.id) for taken in inputs]

    async def _ask_model(self, agent: Agent) -> bool:
        """One request: for a summary if the conversation is too long, otherwise for the next answer. True: the answer
        was the last one, and the run is finished."""
        asks_batch, step = await self._answer_of_batch(agent)
        if step is not None:
            return await self._store_step(agent, step)
        # Before inputs are taken: those that come while the run waits are part of its next request.
        await self._choose_model(agent)
        await self._take_inputs(agent)
        tokens = self._tokens
        try:
            is_last = await self._answer(agent, asks_batch=asks_batch)
        except _ModelUnavailable as fault:
            self._failure = str(fault)
            is_last = False
        if self._pauses.is_limited(self._model):
            await self._pauses.end_request(self._lease, self._model, self._tokens - tokens)
        return is_last

    async def _choose_model(self, agent: Agent) -> None:
        choice = await self._pauses.choose(self._lease.setup.models, self.run_id)
        if choice.model != self._model:
            reason = choice.reasons.get(self._model) or f"{choice.model} is available again."
            await lifecycle.switch_model(self._database, self._lease, self._model, choice.model, reason)
            self._model = choice.model
            # The event tells readers that the text so far is void.
            self._failure = None
        await agent.use(choice.model, once=choice.once)
        if self._pauses.is_limited(self._model):
            await self._pauses.begin_request(self._lease, self._model, await agent.estimated_tokens(self._turns))

    async def _answer(self, agent: Agent, *, asks_batch: bool) -> bool:
        async with self._deltas.text(self._lease) as text:
            compaction = await self._request(agent, agent.compact(self._turns, text.retry))
        if compaction is not None:
            await self._store_compaction(agent, compaction)
            return False
        self._forget_old_turns(agent)
        if asks_batch and agent.batches is not None:
            await self._ask_batch(agent, agent.batches)
        try:
            step = await self._request(agent, self._step(agent))
            await self._pauses.answered(agent.model_name, self.run_id)
        except ContextExceeded as fault:
            agent.shorten(fault)
            return False
        return await self._store_step(agent, step)

    async def _answer_of_batch(self, agent: Agent) -> tuple[bool, Step | None]:
        """Whether the next step is to be asked by a batch. Or the step, if a batch has answered it already."""
        # The one that was asked.
        await agent.use(self._model, once=False)
        if agent.batches is None:
            return False, None
        answer = await model_batches.answer(self._database, self._lease, self._steps + 1)
        if answer is None:
            return True, None
        if answer.result is None:
            return False, None
        # The inputs that came while the run waited are no part of what was answered.
        self._has_taken_inputs = False
        try:
            return False, await agent.decoded(agent.batches, answer.result, self._turns, self._left_out)
        except (ModelFailure, TransientFailure) as fault:
            log.warning("the answer of a batch cannot be read", extra=fields(run_id=self.run_id, reason=str(fault)))
            return False, None

    async def _ask_batch(self, agent: Agent, batches: Batches) -> None:
        """Raises BatchAsked, unless the request does not fit into a batch."""
        request, number = await agent.request(self._turns, self._left_out), self._steps + 1
        try:
            encoded = await model_batches.encode(batches, self._lease, number, request)
        except ModelFailure as fault:
            log.warning("the model is not asked by a batch", extra=fields(run_id=self.run_id, reason=str(fault)))
            return
        raise BatchAsked(agent.model_name, number, encoded)

    async def _store_step(self, agent: Agent, step: Step) -> bool:
        """True: the answer was the last one, and the run is finished."""
        try:
            step, mismatch = await agent.checked(step)
        except ModelFailure as fault:
            # The request has cost something all the same. Not stored as an answer that matches.
            await self._record(agent, step, journal.entries_of(step, str(fault)))
            raise
        answer = journal.answer_turns(step, self.run_id, mismatch)
        is_last = journal.next_step(answer) == journal.END and self._refused(answer) is None
        entries = [*agent.notices(), *journal.entries_of(step, mismatch)]
        if await self._record(agent, step, entries, finish=is_last):
            return True
        self._turns += answer
        self._input_budget_bytes = self._settings.step_input_bytes
        return False

    async def _store_compaction(self, agent: Agent, compaction: Compaction) -> None:
        split, step = compaction.split, compaction.step
        if step is not None:
            await self._pauses.answered(agent.model_name, self.run_id)
            if not compaction.summary:
                # The request has cost something all the same. The older turns are cut off.
                await self._record(agent, step, [])
                return
        self._summarised += self._left_out + len(split.older) - is_summary(split.older)
        entry = journal.compaction_entry(compaction.summary, self._summarised, split.kept_answers)
        if step is None:
            await calls.append(self._database, self._lease, entry)
        else:
            await self._record(agent, step, [entry])
        self._left_out = 0
        self._turns = [summary_turn(compaction.summary), *split.kept]

    async def _record(self, agent: Agent, step: Step, entries: Sequence[NewEvent], *, finish: bool = False) -> bool:
        """Whether the run is finished."""
        finished = await lifecycle.record(self._database, self._lease, entries, agent.model_name, step, finish=finish)
        tokens = {
            "input": step.input_tokens,
            "cached": step.cached_tokens,
            "cache_write": step.cache_write_tokens,
            "output": step.output_tokens,
        }
        metrics.step_stored(agent.model_name, tokens, step.cost_usd)
        self._steps += 1
        self._tokens += step.input_tokens + step.output_tokens
        return finished

    def _forget_old_turns(self, agent: Agent) -> None:
        kept = newest_turns(self._turns, agent.conversation_tokens)
        self._left_out += len(self._turns) - len(kept)
        self._turns = kept

    async def _step(self, agent: Agent) -> Step:
        began = time.monotonic()
        async with self._deltas.text(self._lease) as text:
            if self._failure is not None:
                text.retry(2, 0.0, self._failure)
                self._failure = None
            try:
                step = await agent.step(self._turns, self._left_out, text.add, text.retry, text.pause_seconds)
            except (ModelFailure, TransientFailure):
                metrics.model_failed(agent.model_name)
                raise
        metrics.model_answered(agent.model_name, time.monotonic() - began)
        return step

    async def _request(self, agent: Agent, request: Coroutine[Any, Any, Result]) -> Result:
        """Awaits a request to the model, which `leave` can interrupt. Raises ModelPaused or _ModelUnavailable."""
        if self._is_leaving:
            request.close()
            raise Leaving
        try:
            async with asyncio.timeout(None) as self._request_limit:
                return await request
        except (TransientFailure, QuotaExceeded) as fault:
            models = self._lease.setup.models
            if isinstance(fault, QuotaExceeded) and not agent.asks_once:
                raise
            await self._pauses.failed(agent.model_name, self.run_id, fault)
            if len(models) > 1:
                raise _ModelUnavailable(str(fault)) from None
            raise ModelPaused(models, str(fault)) from None
        except TimeoutError as fault:
            if self._is_leaving:
                raise Leaving from fault
            raise
        finally:
            self._request_limit = None

    async def _call_tools(self, agent: Agent) -> bool:
        """Carries out what can be carried out. False: the other calls need answers, and the run waits for them."""
        runner = ToolRunner(
            self._database,
            self._lease,
            agent.tools,
            self._agents.schemas,
            self._deltas,
            tell_unknown_outcome=self._settings.unknown_outcome == "tell_model",
            result_bytes=agent.result_bytes,
            session_folder=agent.session_folder,
            images=agent.images,
            sandbox_rule=self._sandbox_rule,
        )
        results, actions = await runner.run(journal.open_calls(self._turns), self._steps)
        for result in results:
            journal.add_result(self._turns, result)
        if actions:
            await lifecycle.wait(self._database, self._lease, actions, self._actions)
        return not actions

    def _refused(self, turns: Sequence[Turn]) -> CutOff | None:
        """Why the answer that the turns end with makes the run fail."""
        return journal.cut_off_of(turns) if self._settings.cut_off_answer == "fail" else None

    def _check_answer(self) -> None:
        """After the answer is stored: also a worker that takes over the run finds it."""
        cut_off = self._refused(self._turns)
        if cut_off is not None:
            raise ModelFailure(f"The answer was cut off. {cut_off.reason}")

    def _check_limits(self) -> None:
        settings = self._settings
        if self._steps >= settings.max_steps:
            raise ModelFailure(f"The run needed more than {settings.max_steps} steps.")
        if self._tokens >= settings.max_tokens:
            raise ModelFailure(f"The run used more than {settings.max_tokens} tokens.")

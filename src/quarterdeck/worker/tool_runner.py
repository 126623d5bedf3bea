"""Carries out the open tool calls of a run, as far as worker/tool_calls.py lets it."""

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext, suppress

from msgspec import Struct
from msgspec.structs import replace
from opentelemetry.trace import Span

from quarterdeck.core import tracing
from quarterdeck.core.errors import ErrorKind, ServiceError
from quarterdeck.core.logging import fields, log
from quarterdeck.db.database import Connection, Database
from quarterdeck.events.model import EventType, NewEvent
from quarterdeck.models.model import ResultImage, ToolCall, ToolResult
from quarterdeck.models.output_schema import SchemaChecks
from quarterdeck.runs import calls as call_log
from quarterdeck.runs.action_model import NewAction, RememberedTool
from quarterdeck.runs.calls import CallStates
from quarterdeck.runs.lifecycle import Lease
from quarterdeck.runs.model import Superseded
from quarterdeck.sandbox.manifest import FileChanges, PathConflict
from quarterdeck.sandbox.model import Refusal
from quarterdeck.sandbox.session_folder import SessionFolder
from quarterdeck.sessions import service as sessions
from quarterdeck.tools.model import ToolRule
from quarterdeck.tools.tool import CallContext, Effect, Output, Tool, Toolbox, bounded_result, failed_output, rule_of
from quarterdeck.worker import journal
from quarterdeck.worker.deltas import DeltaSender
from quarterdeck.worker.run_files import ResultImages
from quarterdeck.worker.run_spans import add_result, tool_span
from quarterdeck.worker.tool_calls import (
    CarryOut,
    KnownResult,
    NextStep,
    Rules,
    Wait,
    decide,
    failure,
    key_of,
    state_of,
)

_MIN_PAUSE_SECONDS = 0.2
_MAX_PAUSE_SECONDS = 5.0
# For storing a result after the worker was told to stop.
_STOP_SECONDS = 5.0
# Calls of one answer that are carried out at the same time, if all of them only read.
_READS_AT_ONCE = 8
CONFLICT = (
    "Error: the call was undone. A file was attached meanwhile, and the call made a folder at its path, or a file at "
    "the path of its folder. Try again."
)


class _Known(Struct, frozen=True):
    """The state of a call, and the policy of the session at this moment."""

    states: CallStates
    policy: dict[str, ToolRule]


class ToolRunner:
    def __init__(
        self,
        database: Database,
        lease: Lease,
        tools: Toolbox,
        schemas: SchemaChecks,
        deltas: DeltaSender,
        *,
        tell_unknown_outcome: bool,
        result_bytes: int,
        session_folder: SessionFolder | None = None,
        images: ResultImages | None = None,
        sandbox_rule: ToolRule = ToolRule.ALLOW,
    ) -> None:
        """`session_folder`: the one that the tools change. `images`: None if no tool returns any."""
        self._database = database
        self._lease = lease
        self._tools = tools
        self._schemas = schemas
        self._deltas = deltas
        self._tell_unknown_outcome = tell_unknown_outcome
        self._result_bytes = result_bytes
        self._session_folder = session_folder
        self._images = images
        # All tools of the sandbox use one folder. The first of an attempt fills it, and one that fails discards it:
        # those that only read take turns, too.
        self._folder = asyncio.Lock()
        self._sandbox_rule = sandbox_rule

    async def run(self, calls: Sequence[ToolCall], step: int) -> tuple[list[ToolResult], list[NewAction]]:
        """The results, which are stored, and the actions that the other calls need. Each result is stored by itself:
        after a crash only the calls without a stored result are looked at again.

        Calls that all only read are carried out in parallel. Their results are stored in the order of the calls."""
        results: list[ToolResult] = []
        actions: list[NewAction] = []

        async def keep(call: ToolCall, settled: KnownResult | Wait) -> None:
            if isinstance(settled, Wait):
                actions.append(settled.action)
            else:
                results.append(await self._store(call, settled))

        if len(calls) < 2 or not all(map(self._only_reads, calls)):
            for call in calls:
                await keep(call, await self._settle(call, step))
            return results, actions
        slots = asyncio.Semaphore(_READS_AT_ONCE)

        async def settle(call: ToolCall) -> KnownResult | Wait:
            async with slots:
                return await self._settle(call, step)

        # Not a TaskGroup, which would hide an error in a group.
        tasks = [asyncio.create_task(settle(call)) for call in calls]
        try:
            for call, task in zip(calls, tasks, strict=True):
                await keep(call, await task)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return results, actions

    def _only_reads(self, call: ToolCall) -> bool:
        tool = self._tools.find(call.name)
        return tool is not None and tool.effect is Effect.READS

    async def _settle(self, call: ToolCall, step: int) -> KnownResult | Wait:
        """Carries out the call, if it may be. The answer is not stored."""
        known = await self._read(call, step)
        next_step = self._decide(call, step, known)
        if isinstance(next_step, Wait):
            return await self._mismatch(call, next_step.action) or next_step
        if isinstance(next_step, CarryOut):
            next_step = await self._carry_out(call, step, next_step, known)
        assert not isinstance(next_step, CarryOut)
        return next_step

    async def _mismatch(self, call: ToolCall, action: NewAction) -> KnownResult | None:
        """Why a call of a caller's tool does not match its schema: such a call reaches nobody. None: it may be made."""
        tool = self._tools.find(call.name)
        if tool is None or tool.carry_out is not None or action.arguments is None:
            return None
        parameters = tool.spec.parameters
        reason = await self._schemas.arguments_mismatch(self._lease.workspace_id, parameters, action.arguments)
        if reason is None:
            return None
        whose = "arguments" if action.arguments == call.arguments else "arguments that a person set"
        return failure(f"the {whose} do not match the parameters of this tool: {reason} Call the tool again.")

    async def _read(self, call: ToolCall, step: int) -> _Known:
        async def read(connection: Connection) -> _Known:
            policy = await sessions.tool_policy(connection, self._lease.session_id)
            if policy is None:
                raise Superseded
            return _Known(await call_log.states(connection, self._lease, step, call.id), policy)

        return await self._database.read(read)

    def _decide(self, call: ToolCall, step: int, known: _Known) -> NextStep:
        tool = self._tools.find(call.name)
        rules = Rules(
            ToolRule.DENY if tool is None else rule_of(tool, known.policy, self._sandbox_rule),
            tool is not None and RememberedTool(tool.name, tool.definition_sha256) in known.states.remembered,
            self._tell_unknown_outcome,
        )
        return decide(call, step, tool, rules, state_of(call.id, known.states.started, known.states.actions))

    async def _carry_out(self, call: ToolCall, step: int, order: CarryOut, known: _Known) -> NextStep:
        tool = self._tools.find(call.name)
        assert tool is not None
        async with self._deltas.text(self._lease, call.id) as shown:
            context = CallContext(key_of(self._lease.run_id, step, call.id), shown.add)
            if tool.effect is not Effect.READS:
                await self._store_start(call, context)
            with tool_span(tool, call, order.arguments) as span:
                output = await self._output(tool, order, context, span)
        if output is None:
            states = replace(known.states, started=known.states.started | {call.id: self._lease.attempt})
            return self._decide(call, step, replace(known, states=states))
        text = output.text if order.notice is None else f"{order.notice}\n\n{output.text}"
        return KnownResult(text, output.changes, output.images, output.is_error)

    async def _output(self, tool: Tool, order: CarryOut, context: CallContext, span: Span) -> Output | None:
        """None: the tool failed, and may have taken effect."""
        assert tool.carry_out is not None
        try:
            async with self._folder if tool.is_sandboxed else nullcontext():
                carried_out = await tool.carry_out(order.arguments, context)
            output = Output(carried_out) if isinstance(carried_out, str) else carried_out
            add_result(span, output.text)
            return output
        except Refusal as refusal:
            tracing.mark_failed(span, type(refusal).__name__)
            return failed_output(refusal)
        except (Superseded, ServiceError):
            raise
        except Exception as fault:
            tracing.mark_failed(span, type(fault).__name__)
            log.warning("a tool failed", exc_info=fault, extra=fields(tool=tool.name, run_id=self._lease.run_id))
            return failed_output("the tool failed.") if tool.is_repeatable else None

    async def _store_start(self, call: ToolCall, context: CallContext) -> None:
        """Also the fence: an attempt that has lost the run fails here, before the call."""
        data = {"call_id": call.id, "name": call.name, "key": context.key, "attempt": self._lease.attempt}
        await call_log.record_start(self._database, self._lease, NewEvent(EventType.TOOL_STARTED, data))

    async def _store(self, call: ToolCall, answer: KnownResult) -> ToolResult:
        """A lost result is an unknown outcome. So a worker that is being stopped stores it before it hands the run
        back, unless the database is not available."""
        storing = asyncio.ensure_future(self._store_answer(call, answer))
        try:
            return await asyncio.shield(storing)
        except asyncio.CancelledError:
            with suppress(Superseded, ServiceError, TimeoutError):
                await asyncio.wait_for(storing, _STOP_SECONDS)
            raise

    async def _store_answer(self, call: ToolCall, answer: KnownResult) -> ToolResult:
        content = bounded_result(answer.content, self._result_bytes)
        images: tuple[ResultImage, ...] | None = ()
        if answer.images:
            assert self._images is not None
            images = await self._images.put(answer.images)
        if images is None:
            content, images = f"{content}\n[Its images could not be stored.]", ()
        result = ToolResult(call.id, call.name, content, images, is_error=answer.is_error)
        return await self._store_when_possible(result, answer.changes)

    async def _store_when_possible(self, result: ToolResult, changes: FileChanges | None) -> ToolResult:
        """Tries until the database is back or another attempt has the run."""
        pause_seconds = _MIN_PAUSE_SECONDS
        while True:
            try:
                entry = journal.entry_of(result)
                revision = await call_log.record_result(self._database, self._lease, entry, changes)
                if self._session_folder is not None and changes is not None:
                    self._session_folder.stored(revision)
                return result
            except PathConflict:
                assert self._session_folder is not None, "only its tools change files"
                self._session_folder.undo()
                result, changes = ToolResult(result.call_id, result.name, CONFLICT, is_error=True), None
                continue
            except ServiceError as fault:
                if fault.kind not in (ErrorKind.UNAVAILABLE, ErrorKind.CONTENDED):
                    raise
                log.warning("a result could not be stored", exc_info=fault, extra=fields(run_id=self._lease.run_id))
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, _MAX_PAUSE_SECONDS)

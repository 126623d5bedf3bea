"""The calls of client tools: what a function's result becomes, which calls this process has taken, when to try again
and when to stop."""

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Event as Flag
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
from msgspec import Struct

from quarterdeck.client.calls import backoff_seconds
from quarterdeck.client.errors import (
    ApiError,
    ConnectionFailed,
    Internal,
    InvalidArgument,
    QuarterdeckError,
    TooManyRequests,
)
from quarterdeck.client.models import ActionBody, ActionKind, ActionState, Event, EventType, RunState

if TYPE_CHECKING:
    from quarterdeck.client.event_stream import EventFollower

Tools = Mapping[str, Callable[..., Any]]

RUN_ENDS = (EventType.RUN_SUCCEEDED, EventType.RUN_FAILED, EventType.RUN_CANCELLED)
ENDED_STATES = (RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED)
# A connection that lived longer than this was healthy.
_HEALTHY_SECONDS = 30.0
_STOP_POLL_SECONDS = 0.2


class ToolAnswer(Struct, frozen=True):
    result: Any
    is_error: bool = False


def call_function(function: Callable[..., Any], arguments: dict[str, Any]) -> object:
    return function(**arguments)


async def async_call_function(function: Callable[..., Any], arguments: dict[str, Any]) -> object:
    """A function that is not async runs in a thread, because it may block."""
    import asyncio
    import inspect

    if inspect.iscoroutinefunction(function):
        return await function(**arguments)
    found = await asyncio.to_thread(function, **arguments)
    return await found if inspect.isawaitable(found) else found


def answer_with(tool: str, result: object) -> ToolAnswer:
    """The result of a function, if it is text or JSON. Dates, sets and the like are not converted: each program would
    expect another form."""
    import json

    try:
        json.dumps(result, allow_nan=False)
        msgspec.json.encode(result)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        return ToolAnswer(f"{tool} returned a value that is neither text nor JSON: {error}", is_error=True)
    return ToolAnswer(result)


def answer_for(tool: str, error: Exception) -> ToolAnswer:
    """The message of an exception. The traceback stays in this process, in its log."""
    import logging

    logging.getLogger(__name__).warning("The tool %s raised an exception.", tool, exc_info=error)
    return ToolAnswer(str(error) or type(error).__name__, is_error=True)


def answer_after_refusal(tool: str, error: QuarterdeckError) -> ToolAnswer:
    """Told to the model instead of a result that the server does not accept, such as one that is too long."""
    return ToolAnswer(f"The result of {tool} was not accepted: {error.message}", is_error=True)


def idempotency_key(action_id: UUID) -> str:
    """The same for each attempt, also in another process."""
    return f"tool-result-{action_id}"


def checked(tools: Tools, *, is_async: bool) -> Tools:
    import inspect

    for name, function in tools.items():
        if not callable(function):
            raise InvalidArgument(f"The tool {name} is not a function.")
        if not is_async and inspect.iscoroutinefunction(function):
            raise InvalidArgument(f"The tool {name} is an async function. Use AsyncClient.")
    return tools


def is_for(tools: Tools, action: ActionBody) -> bool:
    return action.state is ActionState.OPEN and action.kind is ActionKind.TOOL_RESULT and action.tool in tools


def action_of(event: Event, tools: Tools) -> str | None:
    """The id of the action, if the event announces a call of one of these tools."""
    if event.type != EventType.ACTION_REQUIRED or event.data.get("kind") != ActionKind.TOOL_RESULT:
        return None
    return str(event.data["action_id"]) if event.data.get("tool") in tools else None


class ToolCalls:
    """The calls that this process carries out. One for each client, because several threads may serve one session."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._in_progress: set[UUID] = set()
        self._finished: set[UUID] = set()
        # Answers that could not be sent yet. The function is not called again for them.
        self._unsent: dict[UUID, ToolAnswer] = {}

    @contextmanager
    def taken(self, action_id: UUID) -> Iterator[bool]:
        """Yields whether the call is now ours. It is not if another thread has it or if it was answered."""
        with self._lock:
            is_ours = action_id not in self._in_progress and action_id not in self._finished
            if is_ours:
                self._in_progress.add(action_id)
        try:
            yield is_ours
        finally:
            if is_ours:
                self._in_progress.discard(action_id)

    def unsent(self, action_id: UUID) -> ToolAnswer | None:
        return self._unsent.get(action_id)

    def keep(self, action_id: UUID, answer: ToolAnswer) -> None:
        self._unsent[action_id] = answer

    def finish(self, action_id: UUID) -> None:
        with self._lock:
            self._finished.add(action_id)
            self._unsent.pop(action_id, None)


class Reconnects:
    """Pauses between attempts, without a limit on their number."""

    def __init__(self) -> None:
        self._failures = 0
        self._started = time.monotonic()

    def attempt(self) -> None:
        self._started = time.monotonic()

    def pause_seconds(self, error: QuarterdeckError) -> float:
        """Raises the error if the same request cannot succeed later."""
        if not _is_temporary(error):
            raise error
        is_healthy = time.monotonic() - self._started > _HEALTHY_SECONDS
        self._failures = 1 if is_healthy else self._failures + 1
        pause = backoff_seconds(self._failures) * (0.5 + random.random() / 2)  # noqa: S311  spreads clients
        return pause + ((error.retry_after or 0.0) if isinstance(error, ApiError) else 0.0)


def _is_temporary(error: QuarterdeckError) -> bool:
    if isinstance(error, ApiError):
        return isinstance(error, (Internal, TooManyRequests)) or error.retry_after is not None
    return isinstance(error, ConnectionFailed)


class Stop:
    """Whether the caller of `Client.serve_tools` has set its event."""

    def __init__(self, event: Flag | None) -> None:
        self._event = event or Flag()

    def is_set(self) -> bool:
        return self._event.is_set()

    def sleep(self, seconds: float) -> None:
        self._event.wait(seconds)

    @contextmanager
    def interrupting(self, follower: "EventFollower") -> Iterator[None]:
        """Ends the stream of events when the event is set: the thread that reads the stream cannot check it."""
        from quarterdeck.client.transport import interrupt

        finished = Flag()

        def watch() -> None:
            while not finished.wait(_STOP_POLL_SECONDS):
                if self._event.is_set() and follower.response is not None:
                    interrupt(follower.response)

        watcher = Thread(target=watch, name="serve_tools", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            finished.set()
            watcher.join()


class AsyncStop:
    """`Stop` of `AsyncClient.serve_tools`: its task is cancelled instead."""

    def is_set(self) -> bool:
        return False

    async def sleep(self, seconds: float) -> None:
        import asyncio

        await asyncio.sleep(seconds)

    @contextmanager
    def interrupting(self, follower: "EventFollower") -> Iterator[None]:
        yield

"""`Client.serve_tools`: carries out the calls of client tools. Decisions are in `tool_calls.py`."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from threading import Event as Flag
from threading import Thread
from typing import TYPE_CHECKING
from uuid import UUID

from quarterdeck.client.errors import Conflict, InvalidArgument, InvalidRequest, NotFound, QuarterdeckError
from quarterdeck.client.event_follower import PAGE_LIMIT, SILENCE_SECONDS, EventFollower
from quarterdeck.client.methods import Methods
from quarterdeck.client.models import ActionBody, Delta, Event, EventType
from quarterdeck.client.operations import LIST_SESSION_EVENTS
from quarterdeck.client.requests import Id, id_text
from quarterdeck.client.tool_calls import (
    ENDED_STATES,
    RUN_ENDS,
    Answer,
    Reconnects,
    Tools,
    action_of,
    answer_after_refusal,
    answer_for,
    answer_with,
    checked,
    idempotency_key,
    is_for,
)

if TYPE_CHECKING:
    from collections.abc import Generator

    import httpx


_STOP_POLL_SECONDS = 0.2


class ToolServer:
    def __init__(self, client: Methods, session_id: Id, tools: Tools, run_id: Id | None, stop: Flag | None) -> None:
        self._client = client._without_retries()
        self._calls = client._tool_calls
        self._session_id = UUID(id_text("session_id", session_id))
        self._tools = checked(tools, is_async=False)
        self._run_id = None if run_id is None else UUID(id_text("run_id", run_id))
        self._stop = stop or Flag()
        self._stream: httpx.Response | None = None
        # The last event that was read. None: the log was not read yet.
        self._position: int | None = None

    def run(self) -> None:
        reconnects = Reconnects()
        with self._interruptible():
            while not self._stop.is_set():
                reconnects.attempt()
                try:
                    if self._serve():
                        return
                except QuarterdeckError as error:
                    if not self._stop.is_set():
                        self._stop.wait(reconnects.pause_seconds(error))

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Ends the stream when `stop` is set: the thread that reads it cannot look."""
        finished = Flag()

        def watch() -> None:
            while not finished.wait(_STOP_POLL_SECONDS):
                if self._stop.is_set() and self._stream is not None:
                    self._client._transport.interrupt(self._stream)

        watching = Thread(target=watch, name="serve_tools", daemon=True)
        watching.start()
        try:
            yield
        finally:
            finished.set()
            watching.join()

    def _serve(self) -> bool:
        """Answers open calls and then new ones. Returns True at the end of the run, and raises when the connection is
        lost."""
        if self._position is None:
            self._position = self._end_of_log()
        # Read after the position in the log, so that what happens from now on is in the stream.
        if self._run_id is not None and self._client.get_run(self._run_id).state in ENDED_STATES:
            return True
        for action in self._client.iter_actions(
            state="open", session_id=self._session_id, kind="tool_result", order="asc"
        ):
            self._handle(action)
        with closing(self._events()) as events:
            for event in events:
                if self._stop.is_set():
                    return True
                if not isinstance(event, Delta) and self._read(event):
                    return True
        return False

    def _end_of_log(self) -> int:
        last = 0
        after: int | None = 0
        while after is not None:
            page = self._client.list_session_events(self._session_id, limit=PAGE_LIMIT, after=after)
            last = page.items[-1].id if page.items else last
            after = page.next_cursor
        return last

    def _events(self) -> "Generator[Event | Delta, None, None]":
        def opened(response: "httpx.Response") -> None:
            self._stream = response

        follower = EventFollower(LIST_SESSION_EVENTS, self._position or 0, reconnects=0)
        path = {"session_id": self._session_id}
        return self._client._follow(follower, path, None, SILENCE_SECONDS, opened)

    def _read(self, event: Event) -> bool:
        """Returns whether it is the end of the run."""
        self._position = event.id
        if event.type == EventType.ACTION_RESOLVED:
            self._calls.finish(UUID(event.data["action_id"]))
        elif (action_id := action_of(event, self._tools)) is not None:
            # The event may be old: somebody may have answered while the connection was lost.
            self._handle(self._client.get_action(action_id))
        return event.run_id is not None and event.run_id == self._run_id and event.type in RUN_ENDS

    def _handle(self, action: ActionBody) -> None:
        if self._stop.is_set() or not is_for(self._tools, action):
            return
        with self._calls.taken(action.id) as is_ours:
            if not is_ours:
                return
            answer = self._calls.unsent(action.id)
            if answer is None:
                answer = self._answer(action)
                self._calls.keep(action.id, answer)
            self._send(action, answer)
            self._calls.finish(action.id)

    def _answer(self, action: ActionBody) -> Answer:
        tool = str(action.tool)
        try:
            return answer_with(tool, self._tools[tool](**(action.arguments or {})))
        except Exception as error:
            return answer_for(tool, error)

    def _send(self, action: ActionBody, answer: Answer) -> None:
        key = idempotency_key(action.id)
        try:
            try:
                self._resolve(action.id, answer, key)
            except (InvalidRequest, InvalidArgument) as error:
                self._resolve(action.id, answer_after_refusal(str(action.tool), error), f"{key}-refused")
        except NotFound:
            # The session was deleted.
            pass
        except Conflict as error:
            # Somebody else has answered, or the run was cancelled. With Retry-After, the server was only busy.
            if error.retry_after is not None:
                raise

    def _resolve(self, action_id: UUID, answer: Answer, key: str) -> None:
        self._client.resolve_action(action_id, result=answer.result, is_error=answer.is_error, idempotency_key=key)

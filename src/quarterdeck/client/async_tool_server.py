"""`tool_server.py` for asyncio. Apart from `await` and the end by cancellation, the two are the same."""

import inspect
from contextlib import aclosing
from typing import Any
from uuid import UUID

from quarterdeck.client.async_methods import AsyncMethods
from quarterdeck.client.errors import Conflict, InvalidArgument, InvalidRequest, NotFound, QuarterdeckError
from quarterdeck.client.event_follower import PAGE_LIMIT, SILENCE_SECONDS, EventFollower
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


class AsyncToolServer:
    def __init__(self, client: AsyncMethods, session_id: Id, tools: Tools, run_id: Id | None) -> None:
        self._client = client._without_retries()
        self._calls = client._tool_calls
        self._session_id = UUID(id_text("session_id", session_id))
        self._tools = checked(tools, is_async=True)
        self._run_id = None if run_id is None else UUID(id_text("run_id", run_id))
        # The last event that was read. None: the log was not read yet.
        self._position: int | None = None

    async def run(self) -> None:
        reconnects = Reconnects()
        while True:
            reconnects.attempt()
            try:
                if await self._serve():
                    return
            except QuarterdeckError as error:
                await self._client._transport.sleep(reconnects.pause_seconds(error))

    async def _serve(self) -> bool:
        """Answers open calls and then new ones. Returns True at the end of the run, and raises when the connection is
        lost."""
        if self._position is None:
            self._position = await self._end_of_log()
        # Read after the position in the log, so that what happens from now on is in the stream.
        if self._run_id is not None and (await self._client.get_run(self._run_id)).state in ENDED_STATES:
            return True
        async for action in self._client.iter_actions(
            state="open", session_id=self._session_id, kind="tool_result", order="asc"
        ):
            await self._handle(action)
        follower = EventFollower(LIST_SESSION_EVENTS, self._position, reconnects=0)
        stream = self._client._follow(follower, {"session_id": self._session_id}, None, SILENCE_SECONDS)
        async with aclosing(stream) as events:
            async for event in events:
                if not isinstance(event, Delta) and await self._read(event):
                    return True
        return False

    async def _end_of_log(self) -> int:
        last = 0
        after: int | None = 0
        while after is not None:
            page = await self._client.list_session_events(self._session_id, limit=PAGE_LIMIT, after=after)
            last = page.items[-1].id if page.items else last
            after = page.next_cursor
        return last

    async def _read(self, event: Event) -> bool:
        """Returns whether it is the end of the run."""
        self._position = event.id
        if event.type == EventType.ACTION_RESOLVED:
            self._calls.finish(UUID(event.data["action_id"]))
        elif (action_id := action_of(event, self._tools)) is not None:
            # The event may be old: somebody may have answered while the connection was lost.
            await self._handle(await self._client.get_action(action_id))
        return event.run_id is not None and event.run_id == self._run_id and event.type in RUN_ENDS

    async def _handle(self, action: ActionBody) -> None:
        if not is_for(self._tools, action):
            return
        with self._calls.taken(action.id) as is_ours:
            if not is_ours:
                return
            answer = self._calls.unsent(action.id)
            if answer is None:
                answer = await self._answer(action)
                self._calls.keep(action.id, answer)
            await self._send(action, answer)
            self._calls.finish(action.id)

    async def _answer(self, action: ActionBody) -> Answer:
        tool = str(action.tool)
        try:
            return answer_with(tool, await self._called(tool, action.arguments or {}))
        except Exception as error:
            return answer_for(tool, error)

    async def _called(self, tool: str, arguments: dict[str, Any]) -> object:
        """A function that is not async runs in a thread, because it may block."""
        function = self._tools[tool]
        if inspect.iscoroutinefunction(function):
            return await function(**arguments)
        found = await self._client._transport.run_in_thread(function, **arguments)
        return await found if inspect.isawaitable(found) else found

    async def _send(self, action: ActionBody, answer: Answer) -> None:
        key = idempotency_key(action.id)
        try:
            try:
                await self._resolve(action.id, answer, key)
            except (InvalidRequest, InvalidArgument) as error:
                await self._resolve(action.id, answer_after_refusal(str(action.tool), error), f"{key}-refused")
        except NotFound:
            # The session was deleted.
            pass
        except Conflict as error:
            # Somebody else has answered, or the run was cancelled. With Retry-After, the server was only busy.
            if error.retry_after is not None:
                raise

    async def _resolve(self, action_id: UUID, answer: Answer, key: str) -> None:
        resolve = self._client.resolve_action
        await resolve(action_id, result=answer.result, is_error=answer.is_error, idempotency_key=key)

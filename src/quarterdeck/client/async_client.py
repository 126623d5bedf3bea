"""The client: the generated methods, and the calls that take several requests."""

import asyncio  # sync: import threading
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Unpack
from uuid import UUID

from quarterdeck.client.async_methods import AsyncMethods
from quarterdeck.client.errors import Conflict, InvalidArgument, InvalidRequest, NotFound, QuarterdeckError
from quarterdeck.client.event_stream import PAGE_LIMIT, SILENCE_SECONDS, EventFollower, is_end
from quarterdeck.client.models import ActionBody, Delta, Event, EventType, FileBody, ModelRetry, SkillVersionBody
from quarterdeck.client.requests import ChangeOptions, Id, IdempotentOptions, id_text
from quarterdeck.client.tool_calls import (
    ENDED_STATES,
    RUN_ENDS,
    AsyncStop,
    Reconnects,
    ToolAnswer,
    Tools,
    action_of,
    answer_after_refusal,
    answer_for,
    answer_with,
    async_call_function,
    checked,
    idempotency_key,
    is_for,
)
from quarterdeck.client.transfers import Bundle, Progress, named_source


class AsyncClient(AsyncMethods):
    """`Client` for asyncio."""  # sync: """A client for one workspace. Thread-safe. Reuse it: it keeps connections."""

    async def events(
        self,
        session_id: Id,
        *,
        after: int = 0,
        follow: bool = True,
        until_run: Id | None = None,
        reconnects: int = 10,
        silence_seconds: float = SILENCE_SECONDS,
        on_retry: Callable[[ModelRetry], None] | None = None,
        workspace_id: Id | None = None,
    ) -> AsyncIterator[Event | Delta]:
        """Iterate over the events of a session that follow the event `after`, each once.

        With `follow`, the iterator continues with new events and live text. It reconnects after broken connections and
        server restarts, and raises when `reconnects` connections in a row brought nothing. It stops when the run
        `until_run` has ended or waits for an answer. Without `follow`, it stops at the current end of the log.
        `on_retry` is called when the server repeats a failed request to the model: the live text then begins anew.
        Wrap it in `contextlib.aclosing` to close the connection when you leave the loop.
        """
        if follow:
            follower = EventFollower(after, reconnects, on_retry)
            stream = self._follow(follower, session_id, workspace_id, silence_seconds)
            async with aclosing(stream):
                async for each in stream:
                    yield each
                    if is_end(each, until_run):
                        return
            return
        start: int | None = after
        while start is not None:
            page = await self.list_session_events(session_id, limit=PAGE_LIMIT, after=start, workspace_id=workspace_id)
            for event in page.items:
                yield event
            start = page.next_cursor

    async def serve_tools(
        self,
        session_id: Id,
        tools: Tools,
        *,
        run_id: Id | None = None,
        # sync: stop: threading.Event | None = None,
    ) -> None:
        """Carry out the calls of the session's client tools and send their results.

        A function gets the arguments of the call by name and returns text or JSON; the message of an exception becomes
        an error for the model. Tools that are not in `tools` are left to others. Returns when the run `run_id` has
        ended; without it, continues until an error that a retry cannot solve, such as a revoked key. With asyncio,
        functions may be async, and the task can be cancelled; in a thread, set `stop`. Lost connections and server
        restarts are not errors. Open calls from before are carried out too. One call at a time: start several tasks or
        threads with this client to carry out several at once.
        """
        stopping = AsyncStop()  # sync: stopping = Stop(stop)
        await _AsyncToolServer(self, session_id, tools, run_id, stopping).run()

    async def push_skill(
        self,
        skill_id: Id,
        bundle: Bundle,
        *,
        progress: Progress | None = None,
        **options: Unpack[ChangeOptions],
    ) -> SkillVersionBody:
        """Push a folder, or an archive given as a path, bytes or an open file. Folders are packed first."""
        from quarterdeck.client.bundle_archive import open_archive

        opened = await asyncio.to_thread(open_archive, bundle)  # sync: opened = open_archive(bundle)
        with opened as archive:
            return await self.push_skill_version(skill_id, archive, progress=progress, **options)

    async def upload(
        self,
        file: Bundle,
        *,
        name: str | None = None,
        media_type: str | None = None,
        progress: Progress | None = None,
        **options: Unpack[IdempotentOptions],
    ) -> FileBody:
        """Upload a file, given as a path, bytes or an open file.

        `name` is that of the path by default, and `media_type` that of the name. The file is read from its current
        position while it is sent, again for each attempt; one that cannot seek is copied first.
        """
        with named_source(file, name, media_type) as found:
            return await self.upload_file(
                found.content, name=found.name, media_type=found.media_type, progress=progress, **options
            )


class _AsyncToolServer:
    """Carries out the calls of client tools. Decisions are in `tool_calls.py`."""

    def __init__(
        self, client: AsyncMethods, session_id: Id, tools: Tools, run_id: Id | None, stopping: AsyncStop
    ) -> None:
        self._client = client._without_retries()
        self._calls = client._tool_calls
        self._session_id = UUID(id_text("session_id", session_id))
        self._tools = checked(tools, is_async=True)  # sync: self._tools = checked(tools, is_async=False)
        self._run_id = None if run_id is None else UUID(id_text("run_id", run_id))
        self._stopping = stopping
        # The last event that was read. None: the log was not read yet.
        self._position: int | None = None

    async def run(self) -> None:
        reconnects = Reconnects()
        while not self._stopping.is_set():
            reconnects.attempt()
            try:
                if await self._serve():
                    return
            except QuarterdeckError as error:
                if not self._stopping.is_set():
                    await self._stopping.sleep(reconnects.pause_seconds(error))

    async def _serve(self) -> bool:
        """Answers open calls and then new ones. Returns True at the end of the run, and raises when the connection is
        lost."""
        if self._position is None:
            self._position = await self._end_of_log()
        # Read after the position in the log, so that what happens from now on is in the stream.
        run = None if self._run_id is None else await self._client.get_run(self._run_id)
        if run is not None and run.state in ENDED_STATES:
            return True
        async for action in self._client.iter_actions(
            state="open", session_id=self._session_id, kind="tool_result", order="asc"
        ):
            await self._handle(action)
        follower = EventFollower(self._position, reconnects=0)
        stream = self._client._follow(follower, self._session_id, None, SILENCE_SECONDS)
        with self._stopping.interrupting(follower):
            async with aclosing(stream) as events:
                async for event in events:
                    if self._stopping.is_set() or (not isinstance(event, Delta) and await self._read(event)):
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
        if self._stopping.is_set() or not is_for(self._tools, action):
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

    async def _answer(self, action: ActionBody) -> ToolAnswer:
        tool = str(action.tool)
        try:
            return answer_with(tool, await async_call_function(self._tools[tool], action.arguments or {}))
        except Exception as error:
            return answer_for(tool, error)

    async def _send(self, action: ActionBody, answer: ToolAnswer) -> None:
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

    async def _resolve(self, action_id: UUID, answer: ToolAnswer, key: str) -> None:
        resolve = self._client.resolve_action
        await resolve(action_id, result=answer.result, is_error=answer.is_error, idempotency_key=key)

"""`AsyncClient`: the generated methods, and the calls that take several requests."""

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING

from quarterdeck.client.async_methods import AsyncMethods
from quarterdeck.client.client import Bundle
from quarterdeck.client.event_follower import PAGE_LIMIT, SILENCE_SECONDS, EventFollower, is_end
from quarterdeck.client.models import Delta, Event, FileBody, ModelRetry, SkillVersionBody
from quarterdeck.client.operations import LIST_SESSION_EVENTS
from quarterdeck.client.requests import Id, IfMatch
from quarterdeck.client.transfers import Progress, named_source

if TYPE_CHECKING:
    from quarterdeck.client.tool_calls import Tools


class AsyncClient(AsyncMethods):
    """`Client` for asyncio."""

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
            follower = EventFollower(LIST_SESSION_EVENTS, after, reconnects, on_retry)
            stream = self._follow(follower, {"session_id": session_id}, workspace_id, silence_seconds)
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

    async def serve_tools(self, session_id: Id, tools: "Tools", *, run_id: Id | None = None) -> None:
        """Carry out the calls of the session's client tools and send their results.

        A function, async or not, gets the arguments of the call by name and returns text or JSON; the message of an
        exception becomes an error for the model. Tools that are not in `tools` are left to others. Returns when the run
        `run_id` has ended; without it, the task runs until it is cancelled, or until an error that a retry cannot
        solve, such as a revoked key. Lost connections and server restarts are not errors. Open calls from before are
        carried out too. One call at a time: start several tasks with this client to carry out several at once.
        """
        from quarterdeck.client.async_tool_server import AsyncToolServer

        await AsyncToolServer(self, session_id, tools, run_id).run()

    async def push_skill(
        self,
        skill_id: Id,
        bundle: Bundle,
        *,
        progress: Progress | None = None,
        if_match: IfMatch | None = None,
        idempotency_key: str | None = None,
        workspace_id: Id | None = None,
    ) -> SkillVersionBody:
        """Push a folder, or an archive given as a path, bytes or an open file. Folders are packed first."""
        from quarterdeck.client.bundle_archive import open_archive

        with await self._transport.run_in_thread(open_archive, bundle) as archive:
            return await self.push_skill_version(
                skill_id,
                archive,
                progress=progress,
                if_match=if_match,
                idempotency_key=idempotency_key,
                workspace_id=workspace_id,
            )

    async def upload(
        self,
        file: Bundle,
        *,
        name: str | None = None,
        media_type: str | None = None,
        progress: Progress | None = None,
        idempotency_key: str | None = None,
        workspace_id: Id | None = None,
    ) -> FileBody:
        """Upload a file, given as a path, bytes or an open file.

        `name` is that of the path by default, and `media_type` that of the name. The file is read from its current
        position while it is sent, again for each attempt; one that cannot seek is copied first.
        """
        with named_source(file, name, media_type) as found:
            return await self.upload_file(
                found.content,
                name=found.name,
                media_type=found.media_type,
                progress=progress,
                idempotency_key=idempotency_key,
                workspace_id=workspace_id,
            )

"""`Client` and `AsyncClient`: the generated methods, and what takes more than one request."""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import BinaryIO

from quarterdeck.client.async_methods import AsyncMethods
from quarterdeck.client.following import PAGE_LIMIT, SILENCE_SECONDS, Follower
from quarterdeck.client.methods import Methods
from quarterdeck.client.model import Delta, Event
from quarterdeck.client.operations import LIST_SESSION_EVENTS
from quarterdeck.client.requests import Id, IfMatch
from quarterdeck.client.transfers import Progress
from quarterdeck.skills.model import SkillVersionBody

Bundle = str | os.PathLike[str] | bytes | BinaryIO


class Client(Methods):
    """A workspace over HTTP. Keep one for many calls: it holds connections open. May be used by several threads."""

    def events(
        self,
        session_id: Id,
        *,
        after: int = 0,
        follow: bool = True,
        reconnects: int = 10,
        silence_seconds: float = SILENCE_SECONDS,
        workspace_id: Id | None = None,
    ) -> Iterator[Event | Delta]:
        """The log of a session from behind the event `after` on, each event once. With `follow` it goes on with what
        comes, live text too, over broken connections and restarts of the server, until the caller leaves the loop;
        it raises once `reconnects` connections in a row gave nothing. Without, it ends with what there is."""
        if follow:
            follower = Follower(LIST_SESSION_EVENTS, after, reconnects)
            yield from self._follow(follower, {"session_id": session_id}, workspace_id, silence_seconds)
            return
        start: int | None = after
        while start is not None:
            page = self.list_session_events(session_id, limit=PAGE_LIMIT, after=start, workspace_id=workspace_id)
            yield from page.items
            start = page.next_cursor

    def push_skill(
        self,
        skill_id: Id,
        bundle: Bundle,
        *,
        progress: Progress | None = None,
        if_match: IfMatch | None = None,
        idempotency_key: str | None = None,
        workspace_id: Id | None = None,
    ) -> SkillVersionBody:
        """Push a folder, which is packed first, or an archive that is packed already: its path, its bytes or a file."""
        from quarterdeck.client.packing import archive_of

        with archive_of(bundle) as archive:
            return self.push_skill_version(
                skill_id,
                archive,
                progress=progress,
                if_match=if_match,
                idempotency_key=idempotency_key,
                workspace_id=workspace_id,
            )


class AsyncClient(AsyncMethods):
    """A workspace over HTTP, for asyncio. Keep one for many calls: it holds connections open."""

    async def events(
        self,
        session_id: Id,
        *,
        after: int = 0,
        follow: bool = True,
        reconnects: int = 10,
        silence_seconds: float = SILENCE_SECONDS,
        workspace_id: Id | None = None,
    ) -> AsyncIterator[Event | Delta]:
        """The log of a session from behind the event `after` on, each event once. With `follow` it goes on with what
        comes, live text too, over broken connections and restarts of the server, until the caller leaves the loop
        (`contextlib.aclosing` closes the connection at once); it raises once `reconnects` connections in a row gave
        nothing. Without, it ends with what there is."""
        if follow:
            follower = Follower(LIST_SESSION_EVENTS, after, reconnects)
            stream = self._follow(follower, {"session_id": session_id}, workspace_id, silence_seconds)
            async with aclosing(stream):
                async for each in stream:
                    yield each
            return
        start: int | None = after
        while start is not None:
            page = await self.list_session_events(session_id, limit=PAGE_LIMIT, after=start, workspace_id=workspace_id)
            for event in page.items:
                yield event
            start = page.next_cursor

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
        """Push a folder, which is packed first, or an archive that is packed already: its path, its bytes or a file."""
        from quarterdeck.client.packing import archive_of

        with await self._wire.in_thread(archive_of, bundle) as archive:
            return await self.push_skill_version(
                skill_id,
                archive,
                progress=progress,
                if_match=if_match,
                idempotency_key=idempotency_key,
                workspace_id=workspace_id,
            )

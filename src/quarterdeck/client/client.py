"""`Client`: the generated methods, and the calls that take several requests."""

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, BinaryIO

from quarterdeck.client.event_follower import PAGE_LIMIT, SILENCE_SECONDS, EventFollower, is_end
from quarterdeck.client.methods import Methods
from quarterdeck.client.models import Delta, Event, FileBody, ModelRetry, SkillVersionBody
from quarterdeck.client.operations import LIST_SESSION_EVENTS
from quarterdeck.client.requests import Id, IfMatch
from quarterdeck.client.transfers import Progress, named_source

if TYPE_CHECKING:
    import threading

    from quarterdeck.client.tool_calls import Tools

Bundle = str | os.PathLike[str] | bytes | BinaryIO


class Client(Methods):
    """A client for one workspace. Create one and reuse it: it keeps connections open. It is thread-safe."""

    def events(
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
    ) -> Iterator[Event | Delta]:
        """Iterate over the events of a session that follow the event `after`, each once.

        With `follow`, the iterator continues with new events and live text. It reconnects after broken connections and
        server restarts, and raises when `reconnects` connections in a row brought nothing. It stops when the run
        `until_run` has ended or waits for an answer. Without `follow`, it stops at the current end of the log.
        `on_retry` is called when the server repeats a failed request to the model: the live text then begins anew.
        """
        if follow:
            follower = EventFollower(LIST_SESSION_EVENTS, after, reconnects, on_retry)
            with closing(self._follow(follower, {"session_id": session_id}, workspace_id, silence_seconds)) as stream:
                for each in stream:
                    yield each
                    if is_end(each, until_run):
                        return
            return
        start: int | None = after
        while start is not None:
            page = self.list_session_events(session_id, limit=PAGE_LIMIT, after=start, workspace_id=workspace_id)
            yield from page.items
            start = page.next_cursor

    def serve_tools(
        self,
        session_id: Id,
        tools: "Tools",
        *,
        run_id: Id | None = None,
        stop: "threading.Event | None" = None,
    ) -> None:
        """Carry out the calls of the session's client tools and send their results.

        A function gets the arguments of the call by name and returns text or JSON; the message of an exception becomes
        an error for the model. Tools that are not in `tools` are left to others. Blocks until the run `run_id` has
        ended or `stop` is set; with neither, until an error that a retry cannot solve, such as a revoked key. Lost
        connections and server restarts are not errors. Open calls from before are carried out too. One call at a time:
        run it in several threads with this client to carry out several at once.
        """
        from quarterdeck.client.tool_server import ToolServer

        ToolServer(self, session_id, tools, run_id, stop).run()

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
        """Push a folder, or an archive given as a path, bytes or an open file. Folders are packed first."""
        from quarterdeck.client.bundle_archive import open_archive

        with open_archive(bundle) as archive:
            return self.push_skill_version(
                skill_id,
                archive,
                progress=progress,
                if_match=if_match,
                idempotency_key=idempotency_key,
                workspace_id=workspace_id,
            )

    def upload(
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
            return self.upload_file(
                found.content,
                name=found.name,
                media_type=found.media_type,
                progress=progress,
                idempotency_key=idempotency_key,
                workspace_id=workspace_id,
            )

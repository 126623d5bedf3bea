"""A conversation over the API: follows the log, sends inputs in order, cancels. Whatever may pass is waited out, for as
long as it takes; whoever sits in front decides when to leave."""

import asyncio
import random
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing, suppress
from typing import Any, TypeVar, cast
from uuid import UUID, uuid4

from quarterdeck.cli.connection import ConnectionInfo
from quarterdeck.cli.conversation import Block, Conversation, Kind
from quarterdeck.client import ApiError, AsyncClient, ConnectionFailed, Internal, QuarterdeckError, TooManyRequests
from quarterdeck.client.models import Delta, Event
from quarterdeck.conversations.runs.model import RunState, SubmitKindBody

T = TypeVar("T")
Show = Callable[[Sequence[Block]], None]

_FIRST_PAUSE_SECONDS = 0.25
# A person is waiting: a server that is back is to be noticed soon.
_LONGEST_PAUSE_SECONDS = 2.0
_PARTING_SECONDS = 10.0
_PARTING_BLOCKS = 20


def open_client(info: ConnectionInfo) -> AsyncClient:
    """It tries once: whether to go on is decided here, where the person can be told."""
    return AsyncClient(info.url, info.key, workspace_id=info.workspace, retries=0, allow_http=info.allow_http)


class Talk:
    def __init__(
        self, client: AsyncClient, session_id: UUID, show: Show, on_event: Callable[[Event], None] | None = None
    ) -> None:
        """With `on_event`, entries of the log go there as they are, and only the rest is shown."""
        self.session_id = session_id
        self.conversation = Conversation()
        # Whether the server has ever answered.
        self.reached = False
        # Whether the server would not have one of the inputs.
        self.refused = False
        self._client = client
        self._show = show
        self._on_event = on_event
        self._outbox: asyncio.Queue[tuple[int, str, str]] = asyncio.Queue()
        self._under_way: set[asyncio.Task[None]] = set()

    async def catch_up(self, last: int) -> tuple[list[Block], bool]:
        """Read the log to its end. The last blocks of it, and whether there were more."""
        blocks: deque[Block] = deque(maxlen=last)
        count = 0

        async def read() -> None:
            nonlocal count
            async for item in self._client.events(self.session_id, after=self.conversation.position, follow=False):
                found = [block for block in self._taken(item) if block.kind is not Kind.PROGRESS]
                blocks.extend(found)
                count += len(found)

        await self._until_it_passes(read)
        return list(blocks), count > last

    async def is_active(self) -> bool:
        """Whether a run is under way, by the server's word."""
        newest = await self._until_it_passes(lambda: self._client.list_session_runs(self.session_id, limit=1))
        return any(run.state in (RunState.QUEUED, RunState.RUNNING) for run in newest.items)

    async def follow(self) -> None:
        """The log from where the conversation is, without end. Raises what will not pass."""
        while True:
            self.conversation.resumed()
            # No reconnecting inside: what breaks must be told, and live text then lacks a piece.
            stream = self._client.events(self.session_id, after=self.conversation.position, reconnects=0)
            try:
                async with aclosing(cast(AsyncGenerator[Event | Delta, None], stream)):
                    async for item in stream:
                        self._show(self._taken(item))
            except QuarterdeckError as fault:
                if not may_pass(fault):
                    raise
                await self._come_back()

    def _taken(self, item: Event | Delta) -> list[Block]:
        if isinstance(item, Delta):
            self.conversation.delta(item)
            return []
        blocks = self.conversation.event(item)
        if self._on_event is None:
            return blocks
        self._on_event(item)
        return []

    async def _come_back(self) -> None:
        """Says that the connection is lost only when it cannot be had again at once: a proxy that ends an old stream
        is not worth a word."""
        after = self.conversation.position
        await asyncio.sleep(_pause_seconds(1))
        await self._until_it_passes(lambda: self._client.list_session_events(self.session_id, limit=1, after=after))

    def submit(self, text: str) -> None:
        # Drawn here, once: however often it is sent, it counts once.
        self._outbox.put_nowait((self.conversation.send(text), text, uuid4().hex))
        self._show([])

    async def send(self) -> None:
        """What was submitted, one after the other: the next goes out when the one before is accepted."""
        while True:
            # Who leaves now still has sent it: `close` waits for the answer.
            await asyncio.shield(self._begin(self._send(*await self._outbox.get())))

    async def _send(self, number: int, text: str, key: str) -> None:
        try:
            accepted = await self._until_it_passes(self._submission(text, key))
        except ApiError as fault:
            self.refused = True
            self._show(self.conversation.refused(number, fault.message))
        else:
            self._show(self.conversation.answered(number, accepted.outcome, accepted.run_id))

    def _submission(self, text: str, key: str) -> Callable[[], Awaitable[SubmitKindBody]]:
        return lambda: self._client.submit_input(self.session_id, text=text, idempotency_key=key)

    def cancel(self, run_id: UUID) -> None:
        self._show([Block(Kind.NOTE, "Cancelling the run. Ctrl-C again leaves.")])
        self._begin(self._cancel(run_id))

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    async def _cancel(self, run_id: UUID) -> None:
        try:
            await self._until_it_passes(lambda: self._client.cancel_run(run_id))
        except QuarterdeckError as fault:
            self._show([Block(Kind.TROUBLE, f"The run could not be cancelled: {fault.message}")])

    async def close(self) -> list[Block]:
        """Who sends or cancels and leaves at once still wants it done. What became of it, as far as it can be told."""
        if not self._under_way:
            return []
        # Nobody is kept by a server that is away.
        patience = _PARTING_SECONDS if self.conversation.connected else 0
        _, late = await asyncio.wait(self._under_way, timeout=patience)
        for task in late:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
        with suppress(QuarterdeckError, TimeoutError):
            async with asyncio.timeout(patience):
                return (await self.catch_up(_PARTING_BLOCKS))[0]
        return []

    async def _until_it_passes(self, attempt: Callable[[], Awaitable[T]]) -> T:
        tried = 0
        while True:
            try:
                done = await attempt()
            except QuarterdeckError as fault:
                # A server that was never there is more likely a wrong address than one that comes back.
                if not self.reached or not may_pass(fault):
                    raise
                tried += 1
                if self.conversation.connected:
                    self._show(self.conversation.lost(fault.message))
                await asyncio.sleep(_pause_seconds(tried))
            else:
                self.reached = True
                if not self.conversation.connected:
                    self._show(self.conversation.back())
                return done


def may_pass(fault: QuarterdeckError) -> bool:
    """Whether the same request may be answered otherwise in a while."""
    if isinstance(fault, ApiError):
        return isinstance(fault, (Internal, TooManyRequests)) or fault.retry_after is not None
    return isinstance(fault, ConnectionFailed)


def _pause_seconds(tried: int) -> float:
    longest = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2.0 ** min(tried - 1, 8))
    return longest * (0.5 + random.random() / 2)  # noqa: S311  spreads clients, guards nothing


async def first_to_end(*coroutines: Coroutine[Any, Any, object]) -> None:
    """Run all until one ends, then end the others. Raises what that one raised."""
    tasks = [asyncio.ensure_future(each) for each in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()

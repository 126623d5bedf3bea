"""A chat over the API: follows the log, sends inputs in order, cancels runs. Temporary errors are retried until the
user quits."""

import asyncio
import random
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast
from uuid import UUID, uuid4

from quarterdeck.cli.connection import ConnectionInfo
from quarterdeck.cli.conversation import Attached, Block, BlockKind, Conversation, QueuedInput
from quarterdeck.client import (
    ApiError,
    AsyncClient,
    Conflict,
    ConnectionFailed,
    Internal,
    QuarterdeckError,
    TooManyRequests,
)
from quarterdeck.client.models import Delivery, Delta, Event, ModelRetry, RunState
from quarterdeck.client.requests import Id

T = TypeVar("T")
Show = Callable[[Sequence[Block]], None]

_ACTIVE_STATES = (RunState.PENDING, RunState.QUEUED, RunState.RUNNING, RunState.WAITING)
_FIRST_PAUSE_SECONDS = 0.25
# Short, because a user is waiting.
_MAX_PAUSE_SECONDS = 2.0
_CLOSE_SECONDS = 10.0
_CLOSE_BLOCKS = 20
# Blocks that one poll shows at most.
_POLL_BLOCKS = 1000


def open_client(info: ConnectionInfo) -> AsyncClient:
    """A client without retries: `ChatSession` retries itself, so that it can tell the user."""
    return AsyncClient(info.url, info.key, workspace_id=info.workspace, retries=0, allow_http=info.allow_http)


class ChatSession:
    def __init__(self, client: AsyncClient, session_id: UUID, show: Show) -> None:
        self.session_id = session_id
        self.conversation = Conversation()
        # Whether the server has responded at least once.
        self.was_reached = False
        # Whether the server has rejected an input.
        self.has_rejected = False
        # Whether the log is read in pages because streams are refused.
        self._is_polling = False
        self._client = client
        self._show = show
        self._outbox: asyncio.Queue[tuple[QueuedInput, list[Id], str]] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()

    async def catch_up(self, count: int) -> tuple[list[Block], bool]:
        """Reads the log to its end. Returns the last `count` blocks, and whether there were more."""
        blocks: deque[Block] = deque(maxlen=count)
        total = 0

        async def read() -> None:
            nonlocal total
            async for item in self._client.events(self.session_id, after=self.conversation.position, follow=False):
                found = [block for block in self.handle(item) if block.kind is not BlockKind.PROGRESS]
                blocks.extend(found)
                total += len(found)

        await self._retry(read)
        return list(blocks), total > count

    async def has_active_run(self) -> bool:
        newest = await self._retry(lambda: self._client.list_session_runs(self.session_id, limit=1))
        return any(run.state in _ACTIVE_STATES for run in newest.items)

    async def follow(self) -> None:
        """Follows the log without end. Raises errors that a retry cannot solve."""
        while True:
            self.conversation.stream_started()
            # The client must not reconnect by itself: the user is told.
            stream = self._client.events(
                self.session_id, after=self.conversation.position, reconnects=0, on_retry=self.retried
            )
            try:
                async with aclosing(cast(AsyncGenerator[Event | Delta, None], stream)):
                    async for item in stream:
                        self._is_polling = False
                        self._show(self.handle(item))
            except TooManyRequests as error:
                await self._poll(error)
            except QuarterdeckError as error:
                if not is_temporary(error):
                    raise
                await self._reconnect()

    async def _poll(self, error: TooManyRequests) -> None:
        """Streams are refused, but pages of the log are not: reads them once, after the pause that the server asks
        for."""
        if not self._is_polling:
            self._is_polling = True
            self._show([Block(BlockKind.WARNING, f"No live updates. {error.message}")])
        await asyncio.sleep((error.retry_after or 0.0) + _pause_seconds(1))
        self._show((await self.catch_up(_POLL_BLOCKS))[0])

    def retried(self, retry: ModelRetry) -> None:
        self._show(self.conversation.retried(retry))

    def handle(self, item: Event | Delta) -> list[Block]:
        """Returns what is to be shown."""
        if isinstance(item, Event):
            return self.conversation.event(item)
        self.conversation.delta(item)
        return []

    async def _reconnect(self) -> None:
        """Tells the user only if the first attempt fails: proxies end long streams routinely."""
        after = self.conversation.position
        await asyncio.sleep(_pause_seconds(1))
        await self._retry(lambda: self._client.list_session_events(self.session_id, limit=1, after=after))

    def submit(self, text: str, delivery: Delivery = Delivery.STEER) -> None:
        attachments: list[Id] = [*self.conversation.attachments]
        # One Idempotency-Key per input, for all attempts to send it.
        self._outbox.put_nowait((self.conversation.send(text, delivery), attachments, uuid4().hex))
        self._show([])

    def attach(self, file: Path) -> None:
        """Uploads a file for the next input."""
        self._start(self._attach(file, uuid4().hex))

    async def _attach(self, file: Path, key: str) -> None:
        uploads = self.conversation.uploads

        def progress(sent: int, total: int) -> None:
            uploads[key] = f"Uploading {file.name}: {100 * sent // max(total, 1)} %"
            self._show([])

        progress(0, 0)
        try:
            found = await self._retry(lambda: self._client.upload(file, progress=progress, idempotency_key=key))
        except QuarterdeckError as error:
            self._show([Block(BlockKind.WARNING, f"{file.name} was not attached: {error.message}")])
        except OSError as error:
            self._show([Block(BlockKind.WARNING, f"{file}: {error.strerror}")])
        else:
            self.conversation.attachments[found.id] = Attached(found.name, found.bytes)
        finally:
            del uploads[key]
            self._show([])

    def detach(self) -> None:
        """Removes the files of the next input, also from the server."""
        for file_id in self.conversation.attachments:
            self._start(self._delete_file(file_id))
        self.conversation.attachments = {}
        self._show([])

    async def _delete_file(self, file_id: UUID) -> None:
        # Nothing refers to it.
        with suppress(QuarterdeckError):
            await self._client.delete_file(file_id)

    async def send(self) -> None:
        """Sends submitted inputs one after the other, each once the one before is accepted."""
        while True:
            # Shielded: `close` waits for the response if the user quits now.
            await asyncio.shield(self._start(self._send(*await self._outbox.get())))

    async def _send(self, sent: QueuedInput, attachments: list[Id], key: str) -> None:
        fields: dict[str, Any] = {"attachments": attachments} if attachments else {}
        submit = partial(self._client.submit_input, self.session_id, text=sent.text, delivery=sent.delivery, **fields)
        try:
            accepted = await self._retry(lambda: submit(idempotency_key=key))
        except ApiError as error:
            self.has_rejected = True
            self._show(self.conversation.rejected(sent, error.message))
        else:
            self._show(self.conversation.accepted(sent, accepted.outcome, accepted.run_id))

    def cancel(self, run_id: UUID) -> None:
        self._show([Block(BlockKind.NOTE, "Cancelling the run. Press Ctrl-C again to quit.")])
        self._start(self._cancel(run_id))

    def resolve(self, action_id: str, answer: dict[str, Any]) -> None:
        self.conversation.actions.send(action_id)
        self._show([])
        self._start(self._resolve(action_id, answer, uuid4().hex))

    async def _resolve(self, action_id: str, answer: dict[str, Any], key: str) -> None:
        """The log tells how the action ended, also if somebody else was faster."""
        try:
            await self._retry(lambda: self._client.resolve_action(action_id, **answer, idempotency_key=key))
        except Conflict as error:
            self._show([Block(BlockKind.WARNING, f"Your answer came too late: {error.message}")])
        except QuarterdeckError as error:
            self.conversation.actions.not_sent(action_id)
            self._show([Block(BlockKind.WARNING, f"The answer was not accepted: {error.message}")])

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _cancel(self, run_id: UUID) -> None:
        try:
            await self._retry(lambda: self._client.cancel_run(run_id))
        except QuarterdeckError as error:
            self._show([Block(BlockKind.WARNING, f"Could not cancel the run: {error.message}")])

    async def close(self) -> list[Block]:
        """Waits for inputs and cancellations that are being sent. Returns what the log says about them."""
        if not self._tasks:
            return []
        # Do not wait for a server that is not reachable.
        timeout = _CLOSE_SECONDS if self.conversation.is_connected else 0
        _, late = await asyncio.wait(self._tasks, timeout=timeout)
        for task in late:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with suppress(QuarterdeckError, TimeoutError):
            async with asyncio.timeout(timeout):
                return (await self.catch_up(_CLOSE_BLOCKS))[0]
        return []

    async def _retry(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeats an attempt until it succeeds. Raises errors that are not temporary."""
        attempts = 0
        while True:
            try:
                result = await attempt()
            except QuarterdeckError as error:
                # A server that never responded is more likely a wrong address.
                if not self.was_reached or not is_temporary(error):
                    raise
                attempts += 1
                if self.conversation.is_connected:
                    self._show(self.conversation.connection_lost(error.message))
                asked = error.retry_after if isinstance(error, TooManyRequests) else None
                await asyncio.sleep((asked or 0.0) + _pause_seconds(attempts))
            else:
                self.was_reached = True
                if not self.conversation.is_connected:
                    self._show(self.conversation.reconnected())
                return result


def is_temporary(error: QuarterdeckError) -> bool:
    """Whether the same request may succeed later."""
    if isinstance(error, ApiError):
        return isinstance(error, (Internal, TooManyRequests)) or error.retry_after is not None
    return isinstance(error, ConnectionFailed)


def _pause_seconds(attempts: int) -> float:
    longest = min(_MAX_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2.0 ** min(attempts - 1, 8))
    return longest * (0.5 + random.random() / 2)  # noqa: S311  spreads clients, not a secret


async def run_until_first(*coroutines: Coroutine[Any, Any, object]) -> None:
    """Runs all until one ends, then cancels the others. Raises the error of the one that ended."""
    tasks = [asyncio.ensure_future(each) for each in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()

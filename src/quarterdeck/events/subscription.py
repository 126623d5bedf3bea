"""One open event stream: its position in the log, and the work that is queued for it."""

import asyncio
from collections import deque
from enum import Enum
from uuid import UUID

from quarterdeck.auth.access import is_session_visible
from quarterdeck.core.actors import Credential, Permission, Principal
from quarterdeck.events.model import DeltaBody, Head, RetryBody

# A session has one active run; deltas of the runs before it may still arrive late.
_REMEMBERED_RUNS = 8


class Signal(Enum):
    READ_LOG = "the log has events after the position"
    TIMEOUT = "nothing arrived in time"
    CLOSED = "the subscription was closed"


class Subscription:
    def __init__(
        self, session_id: UUID, credential: Credential, workspace_id: UUID | None, after: int, max_deltas: int
    ) -> None:
        """`workspace_id` is the caller's Service-Workspace. `after` is the id of the last event that the client has."""
        self.session_id = session_id
        self.credential = credential
        # Id of the last event that was handed to the stream.
        self.position = after
        self.closed = asyncio.Event()
        self._workspace_id = workspace_id
        self._max_deltas = max_deltas
        # Deltas and requests to read the log share one queue, so that text is sent before the message it belongs to.
        # READ_LOG is never queued twice in a row, so the number of deltas bounds the queue.
        self._queue: deque[DeltaBody | RetryBody | Signal] = deque([Signal.READ_LOG])
        self._attempts: dict[UUID, int] = {}
        self._wake = asyncio.Event()

    def request_read(self) -> None:
        if not self._queue or self._queue[-1] is not Signal.READ_LOG:
            self._queue.append(Signal.READ_LOG)
        self._wake.set()

    def add_delta(self, delta: DeltaBody) -> None:
        """A delta is dropped if the queue is full: the stored message will hold its text."""
        if self.note_attempt(delta.run_id, delta.attempt):
            self._add_live(delta)

    def add_retry(self, retry: RetryBody) -> None:
        self._add_live(retry)

    def _add_live(self, item: DeltaBody | RetryBody) -> None:
        if len(self._queue) < 2 * self._max_deltas:
            self._queue.append(item)
            self._wake.set()

    def note_attempt(self, run_id: UUID, attempt: int) -> bool:
        """False if a later attempt at the run is known: deltas of a worker that lost its lease are not sent."""
        if attempt < self._attempts.get(run_id, 0):
            return False
        self._attempts[run_id] = attempt
        if len(self._attempts) > _REMEMBERED_RUNS:
            del self._attempts[next(iter(self._attempts))]
        return True

    def close(self) -> None:
        self.closed.set()
        self._wake.set()

    async def next(self, timeout_seconds: float) -> DeltaBody | RetryBody | Signal:
        if not self._queue and not self.closed.is_set():
            self._wake.clear()
            # Cheaper than asyncio.timeout(): hundreds of subscriptions wait again after every event.
            timer = asyncio.get_running_loop().call_later(timeout_seconds, self._wake.set)
            try:
                await self._wake.wait()
            finally:
                timer.cancel()
        if self.closed.is_set():
            return Signal.CLOSED
        return self._queue.popleft() if self._queue else Signal.TIMEOUT

    def update(self, principal: Principal | None, head: Head | None) -> None:
        """Close the subscription if its caller may no longer read the session, as checked by `Access.admit` when it was
        opened. Request a read if the log has grown. `principal` and `head` are None if they no longer exist."""
        if (
            principal is None
            or head is None
            or not is_session_visible(principal, self.session_id, head.workspace_id, self._workspace_id, own_token=True)
            or not principal.may(Permission.WORKSPACE_READ)
        ):
            self.close()
        elif head.last_id > self.position:
            self.request_read()

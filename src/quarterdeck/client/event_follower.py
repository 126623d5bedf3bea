"""The state of following a session's events over several connections: the last event, reconnects, errors. No I/O."""

import random
from collections.abc import Callable, Iterator

import msgspec

from quarterdeck.client.calls import Response, error_from
from quarterdeck.client.errors import ApiError, ConnectionFailed, QuarterdeckError
from quarterdeck.client.models import Delta, Event, EventType, ModelRetry
from quarterdeck.client.requests import Id, Operation
from quarterdeck.client.sse import Message, Parser

EVENT_STREAM = "text/event-stream"
PAGE_LIMIT = 200
# Three missed heartbeats: the server sends one every 15 seconds by default.
SILENCE_SECONDS = 45.0
_RETRY_SECONDS = 1.0
# Ten reconnects then take more than a minute, enough for a restart of the server.
_MAX_RETRY_SECONDS = 15.0
_ENDS = (EventType.RUN_SUCCEEDED, EventType.RUN_FAILED, EventType.RUN_CANCELLED, EventType.ACTION_REQUIRED)


def is_end(item: Event | Delta, run_id: Id | None) -> bool:
    """Whether the run has ended or waits for an answer with this event."""
    return isinstance(item, Event) and item.type in _ENDS and run_id is not None and str(item.run_id) == str(run_id)


class EventFollower:
    def __init__(
        self, operation: Operation, after: int, reconnects: int, on_retry: Callable[[ModelRetry], None] | None = None
    ) -> None:
        self.operation = operation
        self.last_id = after
        self._reconnects = reconnects
        self._on_retry = on_retry
        self._retry_seconds = _RETRY_SECONDS
        self._failures = 0
        self._parser = Parser()

    def headers(self) -> dict[str, str]:
        """The headers of the next connection, which resumes after the last event that was returned."""
        self._parser = Parser()
        return {"Accept": EVENT_STREAM, "Last-Event-ID": str(self.last_id), "Cache-Control": "no-store"}

    def feed(self, chunk: bytes) -> Iterator[Event | Delta]:
        """The events in a chunk, one by one, so that events before a malformed one are still returned. Raises
        ConnectionFailed if the stream is malformed."""
        try:
            messages = self._parser.feed(chunk)
            self._retry_seconds = self._parser.retry_seconds or self._retry_seconds
            for message in messages:
                found = self._read(message)
                if found is not None:
                    yield found
        except (ValueError, msgspec.DecodeError) as error:
            raise ConnectionFailed(f"The event stream is malformed: {error}") from None
        if self._parser.has_content:
            self._failures = 0

    def _read(self, message: Message) -> Event | Delta | None:
        if message.event in ("message.delta", "tool.delta"):
            return msgspec.json.decode(message.data, type=Delta)
        if message.event == "model.retry" and self._on_retry is not None:
            self._on_retry(msgspec.json.decode(message.data, type=ModelRetry))
        if message.id is None:
            # A live-only message of a type that this version does not know.
            return None
        event = msgspec.json.decode(message.data, type=Event)
        if event.id <= self.last_id:
            return None
        self.last_id = event.id
        return event

    def response_received(self, response: Response) -> float:
        """Handles a response that is not a stream. Returns the pause before the next attempt, or raises."""
        if response.status == 200:
            return self.connection_failed(ConnectionFailed("The response is not an event stream."))
        error = error_from(response)
        if response.status == 429 or response.status >= 500:
            return self.connection_failed(error)
        raise error

    def connection_failed(self, error: QuarterdeckError) -> float:
        """Returns the pause before the next attempt. Raises the error after the last reconnect."""
        self._failures += 1
        if self._failures > self._reconnects:
            raise error
        seconds = min(_MAX_RETRY_SECONDS, self._retry_seconds * 2.0 ** min(self._failures - 1, 32))
        pause = seconds * (0.5 + random.random() / 2)  # noqa: S311  spreads clients, not a secret
        return pause + ((error.retry_after or 0.0) if isinstance(error, ApiError) else 0.0)

    def stream_ended(self) -> float:
        return self.connection_failed(ConnectionFailed("The event stream ended repeatedly without an event."))

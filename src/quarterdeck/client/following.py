"""Following a session's log over any number of connections: what was seen, when to come back, when to give up.
No input or output here."""

import random
from collections.abc import Iterator

import msgspec

from quarterdeck.client.calls import Answer, error_of
from quarterdeck.client.errors import ApiError, ConnectionFailed, QuarterdeckError
from quarterdeck.client.model import Delta, Event
from quarterdeck.client.requests import Operation
from quarterdeck.client.sse import Message, Parser

EVENT_STREAM = "text/event-stream"
PAGE_LIMIT = 200
# The server says that it is alive every 15 seconds by default. Three missed: the connection is dead.
SILENCE_SECONDS = 45.0
_RETRY_SECONDS = 1.0
# Ten reconnects then take more than a minute: long enough for a restart.
_CAP_SECONDS = 15.0


class Follower:
    def __init__(self, operation: Operation, after: int, reconnects: int) -> None:
        self.operation = operation
        self.last_id = after
        self._reconnects = reconnects
        self._retry_seconds = _RETRY_SECONDS
        self._failures = 0
        self._parser = Parser()

    def headers(self) -> dict[str, str]:
        """Of the next connection, which begins behind the last event that was given out."""
        self._parser = Parser()
        return {"Accept": EVENT_STREAM, "Last-Event-ID": str(self.last_id), "Cache-Control": "no-store"}

    def take(self, piece: bytes) -> Iterator[Event | Delta]:
        """The events in what came, one by one: those before a broken one still count. Raises ConnectionFailed when it
        is no stream of events."""
        try:
            messages = self._parser.feed(piece)
            self._retry_seconds = self._parser.retry_seconds or self._retry_seconds
            for message in messages:
                found = self._read(message)
                if found is not None:
                    yield found
        except (ValueError, msgspec.DecodeError) as fault:
            raise ConnectionFailed(f"The stream was broken on the way: {fault}") from None
        if self._parser.alive:
            self._failures = 0

    def _read(self, message: Message) -> Event | Delta | None:
        if message.event == "message.delta":
            return msgspec.json.decode(message.data, type=Delta)
        if message.id is None:
            # Live only, and of a kind that this version does not know.
            return None
        event = msgspec.json.decode(message.data, type=Event)
        if event.id <= self.last_id:
            return None
        self.last_id = event.id
        return event

    def refused(self, answer: Answer) -> float:
        """How long to wait after an answer that is no stream; raises what is not worth waiting for."""
        if answer.status == 200:
            return self.broke(ConnectionFailed("The answer is not a stream of events."))
        error = error_of(answer)
        if answer.status == 429 or answer.status >= 500:
            return self.broke(error)
        raise error

    def broke(self, error: QuarterdeckError) -> float:
        """How long to wait before coming back; raises the error when that was tried often enough in vain."""
        self._failures += 1
        if self._failures > self._reconnects:
            raise error
        seconds = min(_CAP_SECONDS, self._retry_seconds * 2.0 ** min(self._failures - 1, 32))
        pause = seconds * (0.5 + random.random() / 2)  # noqa: S311  spreads clients, guards nothing
        return pause + ((error.retry_after or 0.0) if isinstance(error, ApiError) else 0.0)

    def ended(self) -> float:
        return self.broke(ConnectionFailed("The stream ended again and again without an event."))

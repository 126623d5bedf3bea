"""Sends the text of models' answers, and the output of tool calls, to open streams as it comes. Not stored.

Only for sessions that somebody reads. Text of all runs of a worker travels in one statement. A text that is under way
is kept, so that a reader who comes later gets it from its beginning.
"""

import asyncio
import time
from collections.abc import Iterable, Iterator
from io import StringIO
from itertools import count
from types import TracebackType
from typing import Self
from uuid import UUID

from quarterdeck.core.errors import ServiceError
from quarterdeck.db.database import Database
from quarterdeck.events.live_text import LiveRetry, TextPiece, live_payloads, parse_reader_notice
from quarterdeck.events.log import notify
from quarterdeck.events.model import RetryBody
from quarterdeck.models.model import UNREAD_SECONDS
from quarterdeck.runs.lifecycle import Lease

# A session is forgotten when nobody has announced readers for one to two times as long.
_READER_SECONDS = 10.0
_TOGETHER_SECONDS = 0.01
# How long pieces of an answer may come together before they are read, if somebody reads along.
_READ_SECONDS = 0.15
# Of the output of a call. That of a message is bounded where it comes from.
_KEPT_CHARACTERS = 64 * 1024


class Readers:
    """Sessions that somebody reads, as far as this worker was told."""

    def __init__(self) -> None:
        self._recent: set[UUID] = set()
        self._older: set[UUID] = set()
        self._began = time.monotonic()

    def add(self, session_ids: Iterable[UUID]) -> None:
        self._forget()
        self._recent.update(session_ids)

    def __contains__(self, session_id: UUID) -> bool:
        self._forget()
        return session_id in self._recent or session_id in self._older

    def _forget(self) -> None:
        passed = time.monotonic() - self._began
        if passed < _READER_SECONDS:
            return
        self._older = self._recent if passed < 2 * _READER_SECONDS else set()
        self._recent = set()
        self._began = time.monotonic()


class DeltaSender:
    """Of a worker."""

    def __init__(self, database: Database, interval_seconds: float) -> None:
        """`interval_seconds`: the shortest between two notifications. One for each token would cost too much."""
        self._database = database
        self._interval_seconds = interval_seconds
        self.readers = Readers()
        # Grow within each attempt at a run.
        self.numbers = count(1)
        self._open: dict[UUID, set[OpenText]] = {}
        # With something that was not sent.
        self._unsent: set[OpenText] = set()
        # In the statement that is under way.
        self._sending: set[OpenText] = set()
        self._statement: asyncio.Task[None] | None = None
        self._sender: asyncio.Task[None] | None = None

    def text(self, lease: Lease, call_id: str | None = None) -> "OpenText":
        """`call_id`: of the tool call whose output it is."""
        return OpenText(self, lease, call_id)

    def hear(self, payload: str) -> None:
        """A process tells which sessions its streams read."""
        notice = parse_reader_notice(payload)
        if notice is None:
            return
        read, lacking = {*notice.session_ids, *notice.lacking}, set(notice.lacking)
        self.readers.add(read)
        for session_id in self._open.keys() & read:
            for text in self._open[session_id]:
                if session_id in lacking:
                    text.begin_again()
                # Perhaps nobody has read it until now.
                self.changed(text)

    def send_again(self) -> None:
        """Notices may have been lost."""
        for texts in self._open.values():
            for text in texts:
                text.begin_again()
                self.changed(text)

    def add(self, text: "OpenText") -> None:
        self._open.setdefault(text.session_id, set()).add(text)

    async def remove(self, text: "OpenText") -> None:
        """Returns when none of it is on its way: it would reach streams after the message that is stored next."""
        of_session = self._open[text.session_id]
        of_session.remove(text)
        if not of_session:
            del self._open[text.session_id]
        self._unsent.discard(text)
        if self._statement is not None and text in self._sending:
            await asyncio.wait({self._statement})

    def changed(self, text: "OpenText") -> None:
        if text in self._open.get(text.session_id, ()) and text.session_id in self.readers:
            self._unsent.add(text)
            if self._sender is None:
                self._sender = asyncio.create_task(self._send())

    async def close(self) -> None:
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.gather(self._sender, return_exceptions=True)

    async def _send(self) -> None:
        try:
            while True:
                # Runs that read at the same moment send together.
                await asyncio.sleep(_TOGETHER_SECONDS)
                if not self._unsent:
                    return
                self._sending, self._unsent = self._unsent, set()
                self._statement = asyncio.create_task(self._notify())
                await asyncio.wait({self._statement})
                self._sending = set()
                await asyncio.sleep(self._interval_seconds)
        finally:
            self._sender = None

    async def _notify(self) -> None:
        payloads = live_payloads(item for text in self._sending for item in text.take())
        try:
            await self._database.read(notify, payloads)
        except ServiceError:
            # Perhaps it was sent: streams pass over what they have.
            for text in self._sending:
                text.begin_again()
                self.changed(text)


class OpenText:
    """A message that is being written, or the output of a call that is being carried out."""

    def __init__(self, sender: DeltaSender, lease: Lease, call_id: str | None) -> None:
        self._sender = sender
        self._lease = lease
        self.session_id = lease.session_id
        self._call_id = call_id
        self._number = next(sender.numbers)
        self._retry: RetryBody | None = None
        # The text from position `_start` on. Up to `_end`, it was sent.
        self._kept = StringIO()
        self._start = 0
        self._end = 0

    async def __aenter__(self) -> Self:
        self._sender.add(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Unsent text is part of the message or the result that is stored next.
        await self._sender.remove(self)

    def add(self, text: str) -> None:
        self._kept.write(text)
        if self._call_id is not None and self._kept.tell() > _KEPT_CHARACTERS:
            self._forget_half()
        self._sender.changed(self)

    def retry(self, attempt: int, pause_seconds: float, reason: str) -> None:
        """The next request begins a new text."""
        lease = self._lease
        # Those who come later need not know.
        if self.session_id in self._sender.readers:
            self._retry = RetryBody(lease.session_id, lease.run_id, attempt, round(pause_seconds, 3), reason)
        self._number = next(self._sender.numbers)
        self._kept = StringIO()
        self._start = self._end = 0
        self._sender.changed(self)

    def pause_seconds(self) -> float:
        """How long text may come together before it is given to `add`."""
        return _READ_SECONDS if self.session_id in self._sender.readers else UNREAD_SECONDS

    def begin_again(self) -> None:
        self._end = self._start

    def take(self) -> Iterator[TextPiece | LiveRetry]:
        """What was not sent yet."""
        retry, self._retry = self._retry, None
        if retry is not None:
            yield LiveRetry(retry)
        self._kept.seek(self._end - self._start)
        text, offset = self._kept.read(), self._end
        self._end += len(text)
        if text:
            run_id, attempt = self._lease.run_id, self._lease.attempt
            yield TextPiece(
                self.session_id, run_id, attempt, self._number, offset, text, self._call_id, offset == self._start
            )

    def _forget_half(self) -> None:
        text = self._kept.getvalue()
        kept = text[-_KEPT_CHARACTERS // 2 :]
        self._start += len(text) - len(kept)
        self._end = max(self._end, self._start)
        self._kept = StringIO()
        self._kept.write(kept)

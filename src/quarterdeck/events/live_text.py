"""What workers and open streams send each other by NOTIFY while a model writes: text, and which sessions are read.

A worker sends text only for sessions that somebody reads. Each process with open streams announces their sessions every
few seconds, and at once those whose streams lack text. Every piece of text says at which position it begins, so that a
stream recognises a gap and what it already has: a lost or doubled notification has no lasting effect.
"""

from collections.abc import Iterable, Iterator
from typing import Any
from uuid import UUID

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from quarterdeck.events.model import DeltaBody, RetryBody

# PostgreSQL limits a payload to 7,999 bytes.
_PAYLOAD_BYTES = 7_900
# In JSON. The other fields of a piece take less than 300, without the id of a call.
_TEXT_BYTES = 7_000
_MAX_CALL_ID_BYTES = 500
_REASON_CHARACTERS = 1_000
# A session id takes 39 bytes in JSON.
_SESSIONS_PER_PAYLOAD = 200


class TextPiece(Struct, frozen=True, array_like=True, tag="t"):
    """A piece of a text. See `DeltaBody`."""

    session_id: UUID
    run_id: UUID
    attempt: int
    text_number: int
    offset: int
    text: str
    call_id: str | None = None
    # Earlier text is no longer kept.
    is_earliest: bool = False

    def after(self, end: int) -> DeltaBody:
        """Without what comes before position `end`."""
        start = max(self.offset, end)
        text = self.text[start - self.offset :]
        return DeltaBody(self.session_id, self.run_id, self.attempt, text, self.text_number, start, self.call_id)


class LiveRetry(Struct, frozen=True, array_like=True, tag="r"):
    body: RetryBody

    @property
    def session_id(self) -> UUID:
        return self.body.session_id


class ReaderNotice(Struct, frozen=True, omit_defaults=True, rename={"session_ids": "s", "lacking": "l"}):
    """To workers: these sessions have open streams, and streams of those that are `lacking` need all text so far."""

    session_ids: tuple[UUID, ...] = ()
    lacking: tuple[UUID, ...] = ()


_decoder = msgspec.json.Decoder(ReaderNotice)


def live_payloads(items: Iterable[TextPiece | LiveRetry]) -> list[str]:
    """As few as possible, in the same order."""
    payloads: list[str] = []
    together: list[Raw] = []
    size = 0
    for item in items:
        for encoded in _encoded(item):
            if together and size + len(encoded) + 1 > _PAYLOAD_BYTES:
                payloads.append(_payload(together))
                together, size = [], 0
            together.append(Raw(encoded))
            size += len(encoded) + 1
    return [*payloads, _payload(together)] if together else payloads


def _payload(together: list[Raw]) -> str:
    return msgspec.json.encode({"l": together}).decode()


def _encoded(item: TextPiece | LiveRetry) -> Iterator[bytes]:
    if isinstance(item, LiveRetry):
        yield msgspec.json.encode(LiveRetry(replace(item.body, reason=item.body.reason[:_REASON_CHARACTERS])))
        return
    # Providers choose the ids of calls.
    if item.call_id is not None and _json_bytes(item.call_id) > _MAX_CALL_ID_BYTES:
        return
    # A model may stream half of a surrogate pair, which UTF-8 cannot represent.
    for start, part in _parts(item.text.encode("utf-8", "replace").decode()):
        is_earliest = item.is_earliest and start == 0
        yield msgspec.json.encode(replace(item, text=part, offset=item.offset + start, is_earliest=is_earliest))


def _parts(text: str, start: int = 0) -> Iterator[tuple[int, str]]:
    """Each fits into a payload. With their positions."""
    if _json_bytes(text) <= _TEXT_BYTES:
        if text:
            yield start, text
        return
    half = len(text) // 2
    yield from _parts(text[:half], start)
    yield from _parts(text[half:], start + half)


def _json_bytes(value: Any) -> int:
    return len(msgspec.json.encode(value))


def reader_payloads(session_ids: Iterable[UUID], lacking: Iterable[UUID]) -> list[str]:
    notices = [ReaderNotice(session_ids=part) for part in _in_parts(session_ids)]
    notices += [ReaderNotice(lacking=part) for part in _in_parts(lacking)]
    return [msgspec.json.encode(notice).decode() for notice in notices]


def _in_parts(session_ids: Iterable[UUID]) -> Iterator[tuple[UUID, ...]]:
    ids = tuple(session_ids)
    for start in range(0, len(ids), _SESSIONS_PER_PAYLOAD):
        yield ids[start : start + _SESSIONS_PER_PAYLOAD]


def parse_reader_notice(payload: str) -> ReaderNotice | None:
    """None for foreign payloads: any user of the database can send to the channel."""
    try:
        return _decoder.decode(payload)
    except msgspec.DecodeError:
        return None

"""What processes tell each other about session logs, by NOTIFY: that a log grew, and text while it is being written.

A signal may be lost or doubled without harm: readers look into the log by themselves, and deltas are stored nowhere.
"""

from collections.abc import Iterable, Sequence
from uuid import UUID

import msgspec
from msgspec import Struct

from quarterdeck.conversations.events import store
from quarterdeck.conversations.events.model import DeltaBody
from quarterdeck.db.database import Connection

# PostgreSQL takes payloads of up to 7,999 bytes. An id with its quotes and comma has 39; a character in JSON has six
# at most (a control character), and what surrounds a text less than 300.
_IDS_IN_PAYLOAD = 200
_CHARACTERS_IN_PAYLOAD = 1_250


class Signal(Struct, frozen=True, omit_defaults=True):
    """The payload: `s` names the sessions whose logs grew, or `d` is a piece of text."""

    s: tuple[UUID, ...] = ()
    d: DeltaBody | None = None
    # Tells pieces of one text apart: PostgreSQL drops a payload that equals another of the same transaction.
    n: int = 0


_decoder = msgspec.json.Decoder(Signal)


def hints(session_ids: Iterable[UUID]) -> list[str]:
    every = tuple(session_ids)
    parts = (every[start : start + _IDS_IN_PAYLOAD] for start in range(0, len(every), _IDS_IN_PAYLOAD))
    return [_encoded(Signal(s=part)) for part in parts]


def delta(session_id: UUID, run_id: UUID, attempt: int, text: str) -> list[str]:
    # What a model streams may be cut within a pair of surrogates; half of one cannot be sent.
    text = text.encode("utf-8", "replace").decode()
    pieces = (text[start : start + _CHARACTERS_IN_PAYLOAD] for start in range(0, len(text), _CHARACTERS_IN_PAYLOAD))
    return [
        _encoded(Signal(d=DeltaBody(session_id, run_id, attempt, piece), n=number))
        for number, piece in enumerate(pieces)
    ]


def parse(payload: str) -> Signal | None:
    """None for what is not ours: anyone with the database's password can notify."""
    try:
        return _decoder.decode(payload)
    except msgspec.DecodeError:
        return None


async def notify(connection: Connection, payloads: Sequence[str]) -> None:
    if payloads:
        await store.notify(connection, payloads)


def _encoded(signal: Signal) -> str:
    return msgspec.json.encode(signal).decode()

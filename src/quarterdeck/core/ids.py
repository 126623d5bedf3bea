"""Identifiers: UUIDv7, whose first 48 bits are the creation time, and a strict parser for them."""

import os
import re
import threading
import time
from datetime import UTC, datetime, timedelta
from uuid import UUID

# uuid.UUID() also accepts braces, `urn:uuid:`, missing hyphens and digits of other scripts.
_UUID_FORM = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE | re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_lock = threading.Lock()
_last_tick = 0

LOWEST_ID = UUID(int=0)
HIGHEST_ID = UUID(int=2**128 - 1)


def new_id() -> UUID:
    """A UUIDv7 that is larger than every earlier one of this process.

    The 12 bits after the milliseconds hold the fraction of the millisecond (RFC 9562, method 3), so that records made
    in a burst keep their order. 62 bits are random."""
    global _last_tick
    # A tick is 1/4096 of a millisecond.
    now = time.time_ns() * 4096 // 1_000_000
    with _lock:
        tick = _last_tick = max(now, _last_tick + 1)
    milliseconds, fraction = divmod(tick, 4096)
    version, variant = 0x7, 0b10
    random_bits = int.from_bytes(os.urandom(8)) >> 2
    return UUID(int=milliseconds << 80 | version << 76 | fraction << 64 | variant << 62 | random_bits)


def created_at(identifier: UUID) -> datetime:
    # A double is exact enough until the year 2242.
    return datetime.fromtimestamp((identifier.int >> 80) / 1000, UTC)


def first_id_at(moment: datetime) -> UUID:
    """The lowest id that a record created at `moment` can have."""
    milliseconds = -((_EPOCH - moment) // timedelta(milliseconds=1))
    return UUID(int=max(0, milliseconds) << 80)


def parse_id(text: str) -> UUID | None:
    return UUID(text) if _UUID_FORM.fullmatch(text) else None

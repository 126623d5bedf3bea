"""A wall clock that can jump. A process reads the offset of its clock from a mapped file that the test writes to."""

import mmap
import struct
import sys
import time
from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

_OFFSET = struct.Struct("d")


class Clock:
    """The test's side."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(_OFFSET.pack(0.0))

    def set(self, offset_seconds: float) -> None:
        # In place: a process that has the file mapped sees the change at once.
        with self.path.open("r+b") as file:
            file.write(_OFFSET.pack(offset_seconds))


def install(path: Path) -> None:
    """The process's side. Call it after all modules are loaded: it replaces `datetime` in them, and msgspec must have
    read their types before."""
    with path.open("rb") as file:
        shared = mmap.mmap(file.fileno(), _OFFSET.size, access=mmap.ACCESS_READ)

    def offset() -> float:
        (seconds,) = _OFFSET.unpack(shared[: _OFFSET.size])
        return float(seconds)

    true_time, true_nanoseconds = time.time, time.time_ns
    time.time = lambda: true_time() + offset()
    time.time_ns = lambda: true_nanoseconds() + int(offset() * 1e9)
    shifted = _Shifted(offset)
    for name, module in list(sys.modules.items()):
        if name.startswith("quarterdeck.") and getattr(module, "datetime", None) is datetime:
            vars(module)["datetime"] = shifted


class _Shifted:
    """Replaces the class `datetime`. Only `now` differs."""

    def __init__(self, offset: Callable[[], float]) -> None:
        self._offset = offset

    def now(self, tz: tzinfo | None = None) -> datetime:
        return datetime.now(tz) + timedelta(seconds=self._offset())

    def __call__(self, *fields: Any, **named: Any) -> datetime:
        return datetime(*fields, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(datetime, name)

    def __instancecheck__(self, thing: object) -> bool:
        return isinstance(thing, datetime)

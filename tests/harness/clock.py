"""A wall clock that jumps: a process reads how far it is off from a shared file, and the harness writes into that."""

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
    """The harness's end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(_OFFSET.pack(0.0))

    def set(self, offset_seconds: float) -> None:
        # In place: whoever has the file mapped sees it at once.
        with self.path.open("r+b") as file:
            file.write(_OFFSET.pack(offset_seconds))


def install(path: Path) -> None:
    """The process's end, once its modules are loaded: `datetime` in them is replaced after their types were made."""
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
    """Stands for the class `datetime`; only its idea of now is another."""

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

"""The end of what a command wrote."""

import os
from contextlib import suppress
from typing import IO

_BYTES = 2000


def last_line(output: IO[bytes]) -> str:
    """Empty if there is none. The descriptor itself may be for writing only."""
    with suppress(OSError), open(f"/proc/self/fd/{output.fileno()}", "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _BYTES))
        return (file.read().decode(errors="replace").strip().splitlines() or [""])[-1]
    return ""

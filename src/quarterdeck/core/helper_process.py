"""Runs programs of our own that handle text of others. Each has a process of its own, which delays nobody and is killed
if it takes too long."""

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

# Where the program finds the packages that it needs: it starts without them, which is faster.
_PACKAGES = str(Path(msgspec.__file__).parent.parent)


class ProcessFailed(Exception):
    """`exit_code` is negative if the process was ended by a signal, for example at a limit."""

    def __init__(self, exit_code: int, output: bytes) -> None:
        super().__init__(f"the process ended with {exit_code}")
        self.exit_code = exit_code
        self.output = output


async def run_helper(program: ModuleType, order: Any, seconds: float, descriptors: Sequence[int] = ()) -> bytes:
    """The output of the program, which reads the order from stdin as JSON. Raises TimeoutError or ProcessFailed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", str(program.__file__), _PACKAGES),
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
        pass_fds=descriptors,
        # Nothing of our environment.
        env={},
    )
    try:
        async with asyncio.timeout(seconds):
            output, _ = await process.communicate(msgspec.json.encode(order))
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode != 0:
        assert process.returncode is not None
        raise ProcessFailed(process.returncode, output)
    return output

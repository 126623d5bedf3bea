"""Other people's programs that load and measure: started, waited for, and read."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.case import BenchError

# Longer than any round. What takes as long hangs.
_PATIENCE_SECONDS = 120.0


async def output_of(
    command: Sequence[str | Path], *, folder: Path, environment: Mapping[str, str] | None = None
) -> str:
    """What it wrote. A program that cannot do its work says why in the last line."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command, cwd=folder, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
    except FileNotFoundError as fault:
        raise BenchError(f"{Path(command[0]).name} is missing: bench/install.sh installs it") from fault
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            written, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    text = written.decode(errors="replace")
    if process.returncode:
        last = text.strip().rpartition("\n")[2]
        raise BenchError(f"{Path(command[0]).name} ended with code {process.returncode}: {last}")
    return text

"""Load by wrk: one thread of C that keeps many connections busy. What it sends is written in Lua, in bench/scripts/."""

from pathlib import Path

import msgspec
from msgspec import Struct

from bench.case import BenchError
from bench.programs import output_of

_SCRIPTS = Path(__file__).parent / "scripts"


class Report(Struct, frozen=True):
    """What bench/scripts/done.lua prints."""

    requests: int
    duration_us: int
    # Answers of 400 and more, and connections that broke.
    refused: int
    broken: int
    median_us: int
    p99_us: int

    @property
    def per_second(self) -> float:
        return self.requests / (self.duration_us / 1_000_000)


async def load(port: int, script: str, *, connections: int, seconds: int, **options: object) -> Report:
    """`options` are what the script reads."""
    command = ["wrk", "-t", "1", "-c", str(connections), "-d", f"{seconds}s", "-s", f"{script}.lua"]
    command += [f"http://127.0.0.1:{port}", "--", *(f"{name}={value}" for name, value in options.items())]
    return read_report(await output_of(command, folder=_SCRIPTS))


def read_report(written: str) -> Report:
    """Raises when any answer was not what was asked for: refusals are quick, and would look like speed."""
    lines = [line for line in written.splitlines() if line.startswith("{")]
    if not lines:
        raise BenchError(f"wrk has measured nothing: {written.strip().rpartition(chr(10))[2]}")
    report = msgspec.json.decode(lines[-1], type=Report)
    if report.refused or report.broken:
        raise BenchError(
            f"of {report.requests} requests {report.refused} were refused (status 400 or more) "
            f"and {report.broken} connections failed"
        )
    if not report.requests:
        raise BenchError("wrk had no answer at all")
    return report

"""The database's own limit: pgbench, as it comes with the embedded PostgreSQL, prepared statements, one thread."""

import os
import re
import tempfile
from pathlib import Path

from msgspec import Struct

from bench.case import BenchError
from bench.programs import output_of
from quarterdeck.core.settings import DatabaseSettings
from quarterdeck.db.database import connection_options
from quarterdeck.server.data_directory import binary

_TRANSACTIONS = re.compile(r"^number of transactions actually processed: (\d+)", re.MULTILINE)
_FAILED = re.compile(r"^number of failed transactions: (\d+)", re.MULTILINE)
_RATE = re.compile(r"^tps = ([0-9.]+) \(without initial connection time\)", re.MULTILINE)


class Report(Struct, frozen=True):
    transactions: int
    per_second: float
    # The time of each transaction, if they were logged.
    took_ms: list[float]


async def load(url: str, script: str, *, clients: int, seconds: int, logged: bool = False, **variables: int) -> Report:
    """`script` is what each client repeats, with the options that the service has on its own connections. Logging costs
    a little: only who needs single times asks for it."""
    environment = os.environ | {"PGOPTIONS": connection_options(DatabaseSettings())}
    with tempfile.TemporaryDirectory(prefix="qd-pgbench-") as folder:
        scripts = Path(folder)
        (scripts / "script.sql").write_text(script)
        command = [str(binary("pgbench")), "--no-vacuum", "--protocol=prepared", "--jobs=1"]
        # One second more: on a busy machine, the clients take that long to connect.
        command += [f"--client={clients}", f"--time={seconds + 1}", "--file=script.sql"]
        command += ["--log"] if logged else []
        command += [f"--define={name}={value}" for name, value in variables.items()]
        written = await output_of([*command, url], folder=scripts, environment=environment)
        took_ms = _read_logs(scripts)
    return read_report(written, took_ms)


def read_report(written: str, took_ms: list[float]) -> Report:
    transactions, failed, rate = (pattern.search(written) for pattern in (_TRANSACTIONS, _FAILED, _RATE))
    if not transactions or not rate:
        raise BenchError(f"pgbench has measured nothing: {written.strip().rpartition(chr(10))[2]}")
    if failed and int(failed[1]):
        raise BenchError(f"{failed[1]} of pgbench's transactions failed")
    return Report(int(transactions[1]), float(rate[1]), took_ms)


def _read_logs(folder: Path) -> list[float]:
    return read_log("".join(file.read_text() for file in folder.glob("pgbench_log.*")))


def read_log(lines: str) -> list[float]:
    """Its lines are: client, number, microseconds, script, and when it was done."""
    return [int(line.split()[2]) / 1000 for line in lines.splitlines()]

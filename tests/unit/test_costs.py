"""The parts of `make costs` that can be checked without a server."""

import subprocess
import sys
from pathlib import Path

import pytest
from bench.costs.meter import Cost, Costs, Meter
from bench.costs.report import markdown_of, table_of
from bench.costs.requests import REQUESTS
from bench.costs.stage import Measured

from tests.pages import ROOT

# Grows by 80 MiB and uses some processor time when it is told to, and keeps neither.
GROWING = """
import sys, time
print(flush=True)
sys.stdin.readline()
block = bytearray(80 << 20)
began = time.process_time()
while time.process_time() < began + 0.3: pass
del block
print(flush=True)
sys.stdin.readline()
"""


def measured(answer: str, cpu_seconds: float, *, done: bool = True) -> Measured:
    cost, nothing = Cost(cpu_seconds, 12.4), Cost(0.0, 0.0)
    return Measured(answer, 0.25, done, Costs(cost, nothing, nothing))


def test_before_and_after_are_two_rows() -> None:
    before = {"push": measured("503", 2.0, done=False)}
    table = markdown_of({"push": measured("201", 0.5), "diff": measured("200", 0.1)}, before)
    assert table.splitlines()[2:] == [
        "| push | before | 503, unfinished, 0.25 s | 2.00 s, 12 MiB | 0.00 s, 0 MiB | 0.00 s, 0 MiB |",
        "| | after | 201, 0.25 s | 0.50 s, 12 MiB | 0.00 s, 0 MiB | 0.00 s, 0 MiB |",
        "| diff | | 200, 0.25 s | 0.10 s, 12 MiB | 0.00 s, 0 MiB | 0.00 s, 0 MiB |",
    ]
    assert table_of({"push": measured("201", 0.5)}).row_count == 1


def test_security_md_has_every_request() -> None:
    page = (ROOT / "SECURITY.md").read_text("utf-8")
    assert [one.title for one in REQUESTS if f"| {one.title} |" not in page] == []


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peaks are read from Linux's /proc")
def test_the_peak_of_a_process_counts_even_if_nothing_is_left_of_it() -> None:
    with subprocess.Popen([sys.executable, "-c", GROWING], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        # A process that does nothing has the place of the worker, and of a server without backends.
        with subprocess.Popen(["sleep", "60"]) as idle:
            meter = Meter(process.pid, idle.pid, idle.pid)
            meter.start([])
            process.stdin.write(b"\n")
            process.stdin.flush()
            process.stdout.readline()
            costs = meter.costs([])
            idle.kill()
        process.stdin.close()
    assert 75 < costs.api.memory_mib < 100
    assert costs.api.cpu_seconds > 0.2
    assert costs.worker == costs.postgres == Cost(0.0, 0.0)

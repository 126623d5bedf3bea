"""Fixtures for attacks: two workspaces on one server, and a report of how the neighbour was served."""

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.attacks.neighbour import Tenants, two_tenants
from tests.world import process_logs

# Name of the property by which a test hands its figures to the summary, also from another process.
FIGURES = "neighbour"
# In the stack of a loop that waits until the scheduler of a busy machine lets a new thread or a new process begin.
STARTS = (b"Thread.start", b"Popen._execute_child")


def is_blocked(line: bytes) -> bool:
    return b'"event loop blocked"' in line and not any(start in line for start in STARTS)


@pytest.fixture(autouse=True)
def no_blocked_loop() -> Iterator[None]:
    """No attack blocks the event loop of a server or worker: the watchdog in it says nothing."""
    before = {log: log.stat().st_size for log in process_logs if log.exists()}
    yield
    found = []
    for log in filter(Path.exists, process_logs):
        with log.open("rb") as file:
            file.seek(before.get(log, 0))
            found += [line.decode() for line in file if is_blocked(line)]
    assert not found, "\n".join(found)


@pytest.fixture
async def tenants(
    database_url: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> AsyncIterator[Tenants]:
    async with two_tenants(database_url, tmp_path) as tenants:
        tenants.neighbour.report = partial(record_property, FIGURES)
        yield tenants


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """p99 of the neighbour's requests, without and with each attack."""
    for report in [*terminalreporter.stats.get("passed", []), *terminalreporter.stats.get("failed", [])]:
        for name, lines in report.user_properties:
            if name == FIGURES and report.when == "call":
                terminalreporter.write_line(f"\n{report.nodeid}: p99 of the neighbour's requests, ms")
                for line in lines:
                    terminalreporter.write_line(line)

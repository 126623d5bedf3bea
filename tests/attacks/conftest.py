"""Fixtures for attacks: two workspaces on one server, and a report of how the neighbour was served."""

from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import pytest

from tests.attacks.neighbour import Tenants, two_tenants

# Name of the property by which a test hands its figures to the summary, also from another process.
FIGURES = "neighbour"


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

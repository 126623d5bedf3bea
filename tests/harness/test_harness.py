"""The harness for a minute, and a test of the harness: it catches every bug that is planted."""

import re
import secrets
import shlex
import shutil
import tempfile
from pathlib import Path

import pytest

from tests.harness.__main__ import read
from tests.harness.planted import BUGS
from tests.harness.proof import Order, Proof, Report
from tests.pages import blocks_of, texts_of

SECONDS = 60.0
# A run ends as soon as the bug is caught. On two quiet cores that takes seconds; here others have them too.
PLANTED_SECONDS = 300.0


async def proof(order: Order) -> Report:
    # Not pytest's own: its path is too long for a socket, and others may not enter it.
    folder = Path(tempfile.mkdtemp(prefix="qd-fault-"))
    report = await Proof(order, folder).run()
    if order.plant is None and report.violations:
        pytest.fail(f"seed {order.seed}, history and logs in {folder}: {report.violations[:5]}")
    shutil.rmtree(folder)
    return report


async def test_every_promise_is_kept_for_a_minute_of_faults() -> None:
    report = await proof(Order(seconds=SECONDS, seed=secrets.randbelow(1_000_000)))
    assert report.broken, "nothing was broken"
    assert report.acknowledged > 100, "hardly anything was asked for"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("bug", BUGS)
async def test_a_planted_bug_is_caught(bug: str) -> None:
    order = Order(seconds=PLANTED_SECONDS, seed=secrets.randbelow(1_000_000), plant=bug, faults=BUGS[bug].needs)
    report = await proof(order)
    assert BUGS[bug].is_shown_by(report.violations), f"seed {order.seed}: {report.violations[:5]}"


def test_the_commands_of_the_page_are_understood() -> None:
    """What they do takes a minute or more; the tests above do the same."""
    lines = "".join(texts_of(blocks_of("docs/reliability.md", "bash", "Faults"))).splitlines()
    assert len(lines) == 3
    for line in lines:
        found = re.fullmatch(r'make fault(?: +ARGS="(.*)")? +#.*', line)
        assert found is not None, line
        read(shlex.split(found[1] or ""))

"""The harness for a minute, and a test of the harness: it catches every bug that is planted."""

import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.planted import BUGS
from tests.harness.proof import Order, Proof

SECONDS = 60.0
# A run ends as soon as the bug is caught. On two quiet cores that takes seconds; here others have them too.
PLANTED_SECONDS = 180.0


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not pytest's own: its path is too long for a socket, and others may not enter it."""
    folder = Path(tempfile.mkdtemp(prefix="qd-fault-"))
    yield folder
    shutil.rmtree(folder)


async def test_every_promise_is_kept_for_a_minute_of_faults(folder: Path) -> None:
    order = Order(seconds=SECONDS, seed=secrets.randbelow(1_000_000))
    report = await Proof(order, folder).run()
    assert report.violations == [], f"seed {order.seed}"
    assert report.broken, "nothing was broken"
    assert report.acknowledged > 100, "hardly anything was asked for"


@pytest.mark.parametrize("bug", BUGS)
async def test_a_planted_bug_is_caught(bug: str, folder: Path) -> None:
    order = Order(seconds=PLANTED_SECONDS, seed=secrets.randbelow(1_000_000), plant=bug, faults=BUGS[bug].needs)
    report = await Proof(order, folder).run()
    assert report.violations, f"seed {order.seed}: not caught within {PLANTED_SECONDS:g} s"

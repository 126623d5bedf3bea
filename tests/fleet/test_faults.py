"""A fault run without violations, and planted bugs that the fault run must catch."""

import re
import secrets
import shlex
import shutil
import tempfile
from pathlib import Path

import pytest

from tests.fleet.fault_command import parse_arguments
from tests.fleet.fault_run import FaultOptions, FaultRun, Report
from tests.fleet.planted_bugs import BUGS
from tests.pages import blocks_of, texts_of

# A run with a planted bug ends when the bug is caught, usually within seconds. Only a miss takes this long.
PLANTED_SECONDS = 300.0
# Those that are caught soonest. `make planted-bugs` plants all.
IN_EVERY_RUN = ("check-then-act", "every-answer-is-accepted")


async def fault_run(options: FaultOptions) -> Report:
    # Not tmp_path: it is too long for a Unix socket, and PostgreSQL's account may not enter it.
    folder = Path(tempfile.mkdtemp(prefix="qd-fault-"))
    report = await FaultRun(options, folder).run()
    if options.bug is None and report.violations:
        pytest.fail(f"seed {options.seed}, history and logs in {folder}: {report.violations[:5]}")
    shutil.rmtree(folder)
    return report


@pytest.mark.long
async def test_every_promise_is_kept_under_all_kinds_of_faults() -> None:
    """A few of them, others in each run. `make fault` runs for longer."""
    report = await fault_run(FaultOptions(seconds=25, seed=secrets.randbelow(1_000_000)))
    assert report.faults
    assert report.acknowledged > 30
    assert report.answers


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "bug", [pytest.param(bug, marks=[] if bug in IN_EVERY_RUN else pytest.mark.planted) for bug in BUGS]
)
async def test_a_planted_bug_is_caught(bug: str) -> None:
    seed = secrets.randbelow(1_000_000)
    report = await fault_run(FaultOptions(seconds=PLANTED_SECONDS, seed=seed, bug=bug, faults=BUGS[bug].faults))
    assert BUGS[bug].is_caught(report.violations), f"seed {seed}: {report.violations[:5]}"


def test_the_documented_commands_are_valid() -> None:
    lines = "".join(texts_of(blocks_of("docs/change/reliability.md", "bash", "Faults"))).splitlines()
    assert len(lines) == 3
    for line in lines:
        found = re.fullmatch(r'make fault(?: +ARGS="(.*)")? +#.*', line)
        assert found is not None, line
        parse_arguments(shlex.split(found[1] or ""))

"""Earlier states of the project, taken from its history: their processes run beside those of this one.

There are no tags yet. At a release, its tag takes the place of the commit in RELEASE.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import fork_server
from tests.cli.command import START_SECONDS, environment

ROOT = Path(__file__).parents[1]
# The last commit of release 0.1.0.
RELEASE = "5abb6c067aa85b7e4059ee26e5659cbfcc5a4882"
# The state of 0.2.0 before migration 0033. Set it to the last commit before each new migration: a rolling upgrade from
# there must work, with workers of both, since no release after 0.1.0 asks to stop them.
BEFORE_LAST_MIGRATION = "2dd4194355d076bc4ea22bb4757a95aeb38a84eb"


def sources(commit: str, folder: Path) -> Path:
    """The sources at a commit, for PYTHONPATH. The environment of the tests has all packages that they need."""
    archived = subprocess.run(
        ["git", "-C", str(ROOT), "archive", commit, "src/quarterdeck"], capture_output=True, check=False
    )
    if archived.returncode != 0:
        pytest.skip("needs the history of the project: git fetch --unshallow")
    # Not `extractall`: Python 3.11.2 of Debian 12 has no filter.
    folder.mkdir(exist_ok=True)
    subprocess.run(["tar", "-x", "-C", folder], input=archived.stdout, check=True)
    return folder / "src"


@contextmanager
def importing(source: Path) -> Iterator[None]:
    """Processes that are started inside the block run these sources."""
    with pytest.MonkeyPatch.context() as changed:
        changed.setenv("PYTHONPATH", str(source))
        changed.setenv(fork_server.ADDRESS_VARIABLE, fork_server.NONE)
        yield


def earlier_qd(source: Path, *arguments: str, **settings: str) -> str:
    """The output of a command of the earlier state."""
    with importing(source):
        assert _imported_from(source)
        done = subprocess.run(
            [sys.executable, "-m", "quarterdeck", *arguments],
            env=environment(**settings),
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
        )
    assert done.returncode == 0, done.stderr
    return done.stdout


def earlier_qd_json(source: Path, *arguments: str, **settings: str) -> Any:
    return json.loads(earlier_qd(source, *arguments, "--json", **settings))


def _imported_from(source: Path) -> bool:
    """An editable installation must not come first."""
    ran = subprocess.run(
        [sys.executable, "-c", "import quarterdeck; print(quarterdeck.__file__)"],
        env=os.environ,
        capture_output=True,
        text=True,
        check=True,
    )
    return Path(ran.stdout.strip()).is_relative_to(source)

"""A next release: a copy of the sources with one more migration. Its processes run beside those of this state."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import quarterdeck
from tests import fork_server
from tests.cli.command import START_SECONDS, environment

# Adds only, as docs/decisions/0082 asks for, to tables whose rows functions and statements read as a whole.
MIGRATION = """
ALTER TABLE sessions ADD COLUMN later text NOT NULL DEFAULT 'x';
ALTER TABLE runs ADD COLUMN later jsonb NOT NULL DEFAULT '{}';
ALTER TABLE actions ADD COLUMN later integer;
ALTER TABLE session_events ADD COLUMN later bigint;
CREATE INDEX session_events_later ON session_events (session_id, later) WHERE later IS NOT NULL;
CREATE TABLE later_things (id uuid PRIMARY KEY, session_id uuid NOT NULL REFERENCES sessions ON DELETE CASCADE);
"""
NAME = "9998_later"


def next_release(folder: Path) -> Path:
    """The sources, for PYTHONPATH."""
    package = folder / "src" / "quarterdeck"
    shutil.copytree(Path(quarterdeck.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "db" / "migrations" / f"{NAME}.sql").write_text(MIGRATION)
    return folder / "src"


@contextmanager
def importing(source: Path) -> Iterator[None]:
    """Processes that are started inside the block run these sources."""
    with pytest.MonkeyPatch.context() as changed:
        changed.setenv("PYTHONPATH", str(source))
        changed.setenv(fork_server.ADDRESS_VARIABLE, fork_server.NONE)
        yield


def qd_of(source: Path, *arguments: str, **settings: str) -> str:
    """The output of a command of these sources."""
    with importing(source):
        done = subprocess.run(
            [sys.executable, "-m", "quarterdeck", *arguments],
            env=environment(**settings),
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
        )
    assert done.returncode == 0, done.stderr
    return done.stdout

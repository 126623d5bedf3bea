"""The code of docs/use/client.md, run against a server that was started as the README says."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import environment
from tests.cli.shell import shell
from tests.pages import blocks_of, texts_of


@pytest.mark.long
def test_the_page_runs_from_top_to_bottom(tmp_path: Path) -> None:
    with shell(tmp_path) as at:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", "\n".join(texts_of(blocks_of("docs/use/client.md", "python")))],
            env=environment() | at.variables,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode == 0, done.stderr
    assert "not_found" in done.stdout
    assert done.stdout.splitlines()[-1] == "['greeting']"
    assert (tmp_path / "copy-of-loud.txt").read_text() == "RELEASE 7 IS PLANNED FOR MAY.\n"
    assert (tmp_path / "greeting.tar.gz").read_bytes()[:2] == b"\x1f\x8b"

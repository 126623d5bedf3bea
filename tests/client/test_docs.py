"""docs/client.md, run as it is written, against the server that the README tells the reader to start."""

import re
import subprocess
import sys
from pathlib import Path

from tests.cli.command import environment, qd_serve

DOCS = Path(__file__).parents[2] / "docs" / "client.md"


def test_the_page_runs_from_top_to_bottom(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text("utf-8"), re.DOTALL)
    assert len(blocks) == 6
    with qd_serve(tmp_path / "data", tmp_path / "output") as serving:
        exports = {name: serving.exported(name) for name in ("QD_URL", "QD_WORKSPACE", "QD_KEY")}
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", "\n".join(blocks)],
            env=environment() | exports,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode == 0, done.stderr
    assert "not_found" in done.stdout
    assert done.stdout.splitlines()[-1] == "['greeting']"
    assert (tmp_path / "greeting.tar.gz").read_bytes()[:2] == b"\x1f\x8b"

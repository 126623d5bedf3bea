"""A client that openapi-python-client generates from the OpenAPI document of a running server, as in the docs."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.cli.shell import shell
from tests.pages import ROOT, blocks_of, texts_of

GENERATOR = ROOT / ".venv" / "generator" / "bin"


@pytest.mark.long
@pytest.mark.skipif(not GENERATOR.exists(), reason="make .venv/.generator installs openapi-python-client")
def test_a_generated_client_works(tmp_path: Path) -> None:
    (commands,) = texts_of(blocks_of("docs/use/generated-clients.md", "sh", "Python"))
    (program,) = texts_of(blocks_of("docs/use/generated-clients.md", "python", "Python"))
    with shell(tmp_path) as at:
        variables = at.environ() | {"PYTHONPATH": str(tmp_path / "quarterdeck-client")}
        variables["PATH"] = f"{GENERATOR}{os.pathsep}{variables['PATH']}"
        generated = _run(["sh", "-eu", "-c", commands], variables, tmp_path)
        # The generator goes on without what it does not understand, and warns.
        assert "WARNING" not in generated.upper(), generated
        shown = _run([str(GENERATOR / "python"), "-W", "error", "-c", program], variables, tmp_path)
    assert shown.splitlines() == ["new_run input.accepted", "Says hello. 1 True", "['First key']"]


def _run(command: list[str], variables: dict[str, str], folder: Path) -> str:
    done = subprocess.run(command, env=variables, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr

"""docs/adding-an-operation.md is followed word for word in a copy of the project, which then has to hold together."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import Struct

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "adding-an-operation.md"


class Step(Struct, frozen=True):
    # One, unless a command writes them.
    files: list[str]
    # Lines as in a diff: the first character of each says what to do with the rest.
    blocks: list[list[str]]


def steps() -> list[Step]:
    sections = PAGE.read_text().split("\n## ")[1:]
    found = []
    for section in sections:
        heading, _, text = section.partition("\n")
        if re.match(r"\d+\. ", heading):
            blocks = [block.splitlines() for block in re.findall(r"```diff\n(.*?)```", text, re.DOTALL)]
            found.append(Step(re.findall(r"`(.+?)`", heading), blocks))
    return found


def applied(text: str, block: list[str]) -> str:
    """New lines alone go to the end of the file."""
    old = "".join(f"{line[1:]}\n" for line in block if line[0] in " -")
    new = "".join(f"{line[1:]}\n" for line in block if line[0] in " +")
    if not old:
        return text + new
    assert text.count(old) == 1, f"not once in the file: {old}"
    return text.replace(old, new)


def run(copy: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": f"{copy / 'src'}{os.pathsep}{copy}"}
    environment.pop("PYTEST_XDIST_WORKER", None)
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=copy, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    return done


def contents(folder: Path) -> dict[str, bytes]:
    files = (file for file in folder.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


@pytest.mark.timeout(600)
def test_following_the_page_needs_the_files_it_names_and_no_others(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    for name in ("src", "tests", "docs", "bench", "codegen"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("CHANGELOG.md", "pyproject.toml"):
        shutil.copy(ROOT / name, copy)
    before = contents(copy)
    for step in steps():
        file = copy / step.files[0]
        for block in step.blocks:
            file.write_text(applied(file.read_text() if file.exists() else "", block))
    run(copy, "tests.contract.openapi_snapshot")
    run(copy, "codegen.client")
    run(copy, "ruff", "check", "--no-cache", "--fix", ".")
    run(copy, "ruff", "format", "--no-cache", ".")
    after = contents(copy)
    assert {name for name, text in after.items() if before.get(name) != text} == {
        file for step in steps() for file in step.files
    }
    for suite in ("tests/unit/test_layers.py", "tests/contract/test_openapi.py", "tests/client/test_methods.py"):
        run(copy, "pytest", "-q", "-p", "no:cacheprovider", suite)
    run(copy, "pytest", "-q", "-p", "no:cacheprovider", "tests/contract/test_relabel_api_key.py",
        "tests/contract/test_callers.py", "tests/store/test_sql_prepares.py", "-k", "relabel or RELABEL")  # fmt: skip

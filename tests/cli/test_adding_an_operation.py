"""Follows docs/change/adding-an-operation.md step by step in a copy of the project, then runs its checks and tests."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import Struct

from tests.cli.shell import install
from tests.fork_server import ADDRESS_VARIABLE
from tests.pages import ROOT, blocks_of, texts_of

_TOOL = '#!/bin/sh\nexec "{{python}}" -m {tool} "$@"\n'
_LINT_IMPORTS = '#!/bin/sh\nexec "{python}" -c "import importlinter.cli as cli; cli.lint_imports_command()" "$@"\n'


class Step(Struct, frozen=True):
    # One file, unless a command writes several.
    files: list[str]
    # Lines of a diff, with their first character.
    blocks: list[list[str]]


def steps() -> list[Step]:
    diffs = blocks_of("docs/change/adding-an-operation.md", "diff")
    found = []
    page = (ROOT / "docs/change/adding-an-operation.md").read_text()
    for heading in re.findall(r"^## (\d+\. .*)$", page, re.MULTILINE):
        blocks = [block.text.splitlines() for block in diffs if block.section == heading]
        found.append(Step(re.findall(r"`(.+?)`", heading), blocks))
    return found


def applied(text: str, block: list[str]) -> str:
    """A block of new lines only is appended to the file."""
    old = "".join(f"{line[1:]}\n" for line in block if line[0] in " -")
    new = "".join(f"{line[1:]}\n" for line in block if line[0] in " +")
    if not old:
        return text + new
    assert text.count(old) == 1, f"not once in the file: {old}"
    return text.replace(old, new)


def run(copy: Path, *command: str) -> None:
    environment = os.environ | {"PYTHONPATH": f"{copy / 'src'}{os.pathsep}{copy}"}
    # The inner run needs its own schema, and processes of the changed sources.
    for name in ("PYTEST_XDIST_WORKER", "QUARTERDECK_TEST_DATABASE_URL", ADDRESS_VARIABLE):
        environment.pop(name, None)
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]


def contents(folder: Path) -> dict[str, bytes]:
    files = (file.relative_to(folder) for file in folder.rglob("*") if file.is_file())
    generated = {"__pycache__", "node_modules"}
    kept = (file for file in files if not generated & set(file.parts) and not file.parts[0].startswith("."))
    return {str(file): (folder / file).read_bytes() for file in kept}


def prepare(copy: Path) -> None:
    """A `.venv` that `make` considers complete, with the tools of this environment."""
    for tool in ("ruff", "mypy"):
        install(copy / ".venv" / "bin" / tool, _TOOL.format(tool=tool))
    install(copy / ".venv" / "bin" / "lint-imports", _LINT_IMPORTS)
    (copy / ".venv" / "bin" / "python").symlink_to(sys.executable)
    for name in (".runtime", ".dev"):
        (copy / ".venv" / name).touch()
    # Saves the type checker a minute.
    if (ROOT / ".mypy_cache").is_dir():
        shutil.copytree(ROOT / ".mypy_cache", copy / ".mypy_cache")


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.slowest
def test_documented_steps_touch_only_the_named_files(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    for name in ("src", "tests", "docs", "bench", "codegen", "requirements"):
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("README.md", "CHANGELOG.md", "Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, copy)
    prepare(copy)
    before = contents(copy)
    for step in steps():
        file = copy / step.files[0]
        for block in step.blocks:
            file.write_text(applied(file.read_text() if file.exists() else "", block))
    python = (sys.executable, "-m")
    run(copy, *python, "tests.contract.openapi_snapshot")
    run(copy, *python, "codegen.client")
    run(copy, "sh", "-eu", "-c", "\n".join(texts_of(blocks_of("docs/change/adding-an-operation.md", "sh"))))
    after = contents(copy)
    assert {name for name, text in after.items() if before.get(name) != text} == {
        file for step in steps() for file in step.files
    }
    # Only tests of these files that concern the new operation. `-k` also matches file names.
    files = (
        "tests/unit/test_layers.py",
        "tests/contract/test_openapi.py",
        "tests/client/test_methods.py",
        "tests/contract/test_relabel_api_key.py",
        "tests/contract/test_callers.py",
        "tests/store/test_sql_prepares.py",
        "tests/store/test_two_workspaces.py",
    )
    names = ["test_methods.py", "relabel", "RELABEL", "source_follows", "is_valid_openapi", "is_the_snapshot"]
    names += ["every_statement", "no_row_of_the_other", "every_component", "page_shows_every_operation"]
    run(copy, *python, "pytest", "-q", "-p", "no:cacheprovider", *files, "-k", " or ".join(names))

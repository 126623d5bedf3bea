"""Every third-party import in src is declared in pyproject.toml, the client and its commands import without the extras,
and the locks pin every file by its hash."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections import deque
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from quarterdeck import __version__
from tests.pages import ROOT

SOURCE = ROOT / "src" / "quarterdeck"
LOCKS = sorted((ROOT / "requirements").glob("*.lock"))


@cache
def declared() -> dict[str, set[str]]:
    """Names of the declared distributions: "" has those of a plain install, other keys are the extras."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lists = {"": table["dependencies"], **table["optional-dependencies"]}
    return {extra: {canonicalize_name(Requirement(line).name) for line in lines} for extra, lines in lists.items()}


@cache
def modules() -> dict[str, ast.Module]:
    return {
        ".".join(file.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__"): ast.parse(
            file.read_text("utf-8")
        )
        for file in SOURCE.rglob("*.py")
    }


@cache
def distributions() -> dict[str, set[str]]:
    """Top-level modules with the distributions that install them."""
    return {top: {canonicalize_name(name) for name in names} for top, names in packages_distributions().items()}


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def imports(node: ast.AST, *, at_import: bool) -> Iterator[str]:
    """Dotted names. `at_import`: only what runs when the module is imported, so neither functions nor TYPE_CHECKING."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "imports are absolute"
            assert child.module is not None
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        elif not at_import or not (
            isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) or is_type_checking(child)
        ):
            yield from imports(child, at_import=at_import)


def third_party(names: Iterator[str]) -> set[str]:
    tops = {name.partition(".")[0] for name in names}
    return tops - sys.stdlib_module_names - {"quarterdeck"}


def undeclared(tops: set[str], names: set[str]) -> list[str]:
    return sorted(top for top in tops if not names & distributions().get(top, set()))


def reachable(start: str) -> set[str]:
    """Our modules that importing `start` imports, with the packages they are in."""
    found: set[str] = set()
    left = deque([start])
    while left:
        name = left.popleft()
        if name in found or name not in modules():
            continue
        found.add(name)
        left.append(name.rpartition(".")[0])
        for target in imports(modules()[name], at_import=True):
            left += [target, target.rpartition(".")[0]]
    return found


def test_every_import_is_declared() -> None:
    used = {top for tree in modules().values() for top in third_party(imports(tree, at_import=False))}
    assert {"msgspec", "psycopg", "yaml"} <= used
    assert undeclared(used, set().union(*declared().values())) == []


# `skill_lint` is what `qd skills lint` imports when it runs.
@pytest.mark.parametrize("start", ["quarterdeck.client", "quarterdeck.cli.sessions", "quarterdeck.cli.skill_lint"])
def test_imports_without_the_extras(start: str) -> None:
    names = reachable(start)
    assert len(names) > 10
    base = declared()[""]
    found = {name: undeclared(third_party(imports(modules()[name], at_import=True)), base) for name in names}
    assert {name: tops for name, tops in found.items() if tops} == {}


def test_an_undeclared_import_is_found() -> None:
    tree = ast.parse("import psycopg\nif TYPE_CHECKING:\n    import starlette\ndef late():\n    import redis.client")
    assert third_party(imports(tree, at_import=False)) == {"psycopg", "starlette", "redis"}
    assert third_party(imports(tree, at_import=True)) == {"psycopg"}
    assert undeclared({"psycopg", "yaml", "no_such_module"}, {"pyyaml"}) == ["no_such_module", "psycopg"]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_every_locked_package_has_a_version_and_a_hash(lock: Path) -> None:
    entries = lock.read_text("utf-8").replace("\\\n", "").splitlines()
    entry = re.compile(r"[a-z0-9-]+==\S+( ; .+?)? +(--hash=sha256:[0-9a-f]{64} *)+")
    assert len(entries) > 10
    assert [line for line in entries if not entry.fullmatch(line)] == []


@pytest.mark.long
def test_audit_fails_without_a_result(tmp_path: Path) -> None:
    """With the recipe of the Makefile and a proxy that nobody serves."""
    arguments = f"ARGS=--cache-dir={tmp_path}"
    command = ["make", "--dry-run", "--assume-old=.venv/.dev", "audit", arguments]
    recipe = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "--strict" in recipe, "packages that the service does not know would be skipped"
    environment = os.environ | {"HTTPS_PROXY": "http://127.0.0.1:1", "NO_PROXY": ""}
    recipe = recipe.replace(".venv/bin/python", sys.executable)
    done = subprocess.run(["sh", "-c", recipe], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "No known vulnerabilities" not in done.stdout + done.stderr
    assert "ProxyError" in done.stderr


def test_the_version_in_the_source_is_that_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["version"] == __version__

"""SECURITY.md claims nothing that no test shows, and says of Python's own library what the source really uses."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.pages import ROOT

PAGE = (ROOT / "SECURITY.md").read_text("utf-8")
# At the merge of what is being built these lines get their tests.
OPEN = re.compile(r"TODO\(\w+\)")
_NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


@cache
def names_in(file: Path) -> set[str]:
    """By reading: nothing is imported or run."""
    tree = ast.parse(file.read_text("utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def rows() -> list[str]:
    lines = [line for line in PAGE.splitlines() if line.startswith("|")]
    return [line for line in lines if not line.startswith(("| tries ", "|---"))]


def test_every_test_that_is_named_exists() -> None:
    named = _NAMED.findall(PAGE)
    assert len(named) > 60
    assert [f"{file}::{name}" for file, name in named if name not in names_in(ROOT / file)] == []


def test_every_attempt_has_a_test() -> None:
    assert len(rows()) > 35
    assert [row for row in rows() if not _NAMED.search(row) and not OPEN.search(row)] == []


def test_a_name_that_is_none_would_be_found() -> None:
    assert "test_that_is_not_there" not in names_in(Path(__file__))
    assert "test_a_name_that_is_none_would_be_found" in names_in(Path(__file__))


def modules_that_import(name: str) -> dict[str, set[str]]:
    """Modules of the source, with what they take from this one."""
    found: dict[str, set[str]] = {}
    for file in sorted((ROOT / "src").rglob("*.py")):
        tree = ast.parse(file.read_text("utf-8"))
        nodes = list(ast.walk(tree))
        plain = any(isinstance(node, ast.Import) and name in [each.name for each in node.names] for node in nodes)
        taken = {each.name for node in nodes if isinstance(node, ast.ImportFrom) and node.module == name
                 for each in node.names}  # fmt: skip
        if plain:
            taken |= {node.attr for node in nodes if isinstance(node, ast.Attribute)
                      and isinstance(node.value, ast.Name) and node.value.id == name}  # fmt: skip
        if plain or taken:
            found[file.relative_to(ROOT / "src" / "quarterdeck").as_posix()] = taken
    return found


def test_tarfile_writes_headers_in_the_client_and_reads_nothing() -> None:
    assert modules_that_import("tarfile") == {"client/packing.py": {"BLOCKSIZE", "PAX_FORMAT", "TarInfo"}}


@pytest.mark.parametrize(
    "name", ["zipfile", "pickle", "shelve", "marshal", "xml", "bz2", "lzma", "ftplib", "telnetlib"]
)
def test_parsers_that_were_broken_before_are_not_used(name: str) -> None:
    assert modules_that_import(name) == {}


def test_what_unpacks_is_known() -> None:
    assert modules_that_import("zlib") == {
        "access/secrets.py": {"crc32"},
        "skills/gunzip.py": {"decompressobj", "error"},
    }
    assert modules_that_import("gzip") == {"client/packing.py": {"GzipFile"}, "http/console.py": {"compress"}}

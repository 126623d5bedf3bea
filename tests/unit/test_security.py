"""SECURITY.md and docs/change/reliability.md claim nothing that no test shows, and the first says of Python's own
library what the source really uses."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.pages import ROOT

SECURITY, RELIABILITY = "SECURITY.md", "docs/change/reliability.md"
_NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


@cache
def names_in(file: Path) -> set[str]:
    """By reading: nothing is imported or run."""
    tree = ast.parse(file.read_text("utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def text_of(page: str) -> str:
    return (ROOT / page).read_text("utf-8")


def rows(page: str, heading: str) -> list[str]:
    """Of all tables with this heading in their first column."""
    found: list[str] = []
    inside = False
    for line in text_of(page).splitlines():
        inside = line.startswith("|") and (inside or line.startswith(f"| {heading} "))
        found += [line] if inside and not line.startswith((f"| {heading} ", "|---")) else []
    return found


@pytest.mark.parametrize("page", [SECURITY, RELIABILITY])
def test_every_named_test_exists(page: str) -> None:
    named = _NAMED.findall(text_of(page))
    assert len(named) > 25
    assert [f"{file}::{name}" for file, name in named if name not in names_in(ROOT / file)] == []


@pytest.mark.parametrize(("page", "heading", "count"), [(SECURITY, "attack", 38), (RELIABILITY, "promise", 10)])
def test_every_claim_has_a_test(page: str, heading: str, count: int) -> None:
    claims = rows(page, heading)
    assert len(claims) >= count
    assert [row for row in claims if not _NAMED.search(row)] == []


def test_missing_test_name_is_detected() -> None:
    assert "test_that_is_not_there" not in names_in(Path(__file__))
    assert "test_missing_test_name_is_detected" in names_in(Path(__file__))


@cache
def source() -> dict[str, list[ast.AST]]:
    """The nodes of every module, by its path."""
    folder = ROOT / "src" / "quarterdeck"
    return {
        file.relative_to(folder).as_posix(): list(ast.walk(ast.parse(file.read_text("utf-8"))))
        for file in sorted(folder.rglob("*.py"))
    }


def modules_that_import(name: str) -> dict[str, set[str]]:
    """Modules of the source, with what they take from this one."""
    found: dict[str, set[str]] = {}
    for path, nodes in source().items():
        plain = any(isinstance(node, ast.Import) and name in [each.name for each in node.names] for node in nodes)
        taken = {each.name for node in nodes if isinstance(node, ast.ImportFrom) and node.module == name
                 for each in node.names}  # fmt: skip
        if plain:
            taken |= {node.attr for node in nodes if isinstance(node, ast.Attribute)
                      and isinstance(node.value, ast.Name) and node.value.id == name}  # fmt: skip
        if plain or taken:
            found[path] = taken
    return found


def test_the_server_writes_tar_headers_and_reads_nothing_with_tarfile() -> None:
    headers = {"BLOCKSIZE", "PAX_FORMAT", "TarInfo"}
    assert modules_that_import("tarfile") == {
        # Reads the files of a session on the caller's machine. It writes them with code of its own and makes no links.
        "cli/files.py": {"open", "TarFile", "TarInfo"},
        "client/bundle_archive.py": headers,
        "session_files/archive.py": headers | {"DIRTYPE", "REGTYPE", "SYMTYPE"},
    }


@pytest.mark.long
@pytest.mark.parametrize("name", ["pickle", "shelve", "marshal", "xml", "bz2", "lzma", "ftplib", "telnetlib"])
def test_parsers_with_known_holes_are_not_used(name: str) -> None:
    assert modules_that_import(name) == {}


def test_only_known_modules_unpack() -> None:
    # Backups are written by the operator and read in pieces. Nothing is extracted by name.
    assert modules_that_import("zipfile") == {
        "backups/backup_file.py": {"BadZipFile", "ZIP_DEFLATED", "ZIP_STORED", "ZipFile", "ZipInfo"}
    }
    assert modules_that_import("zlib") == {
        "backups/backup_file.py": {"error"},
        "session_files/archive.py": {"DEFLATED", "compressobj"},
        "core/secrets.py": {"crc32"},
        "skills/gunzip.py": {"decompressobj", "error"},
    }
    assert modules_that_import("gzip") == {
        "api/static_pages.py": {"compress"},
        "client/bundle_archive.py": {"GzipFile"},
    }

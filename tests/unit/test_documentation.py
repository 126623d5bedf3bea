"""Links between the pages lead somewhere, indexes are complete, and the picture of the layers is the real one."""

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.pages import ROOT, all_blocks, page_names

PAGES = [*page_names(), "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "bench/README.md", "bench/peers/README.md"]
# Folders and files whose comments and messages name pages by their path.
SOURCES = ("src", "tests", "bench", "codegen", "deploy", ".ci", ".github", "Makefile", "pyproject.toml")
BINARY = {".png", ".svg", ".gz", ".pyc", ".woff2"}
DECISIONS = ROOT / "docs" / "decisions"
_LINK = re.compile(r"\]\(([^)\s]+)\)|\b(?:src|srcset|href)=\"([^\"]+)\"")
_ELSEWHERE = re.compile(r"[a-z]+:|/")
_NAMED = re.compile(r"(?<![\w/.])docs/(?:(?:use|run|change|decisions)/)?[\w-]+\.md(?:#[\w-]+)?")
_NAMED_DECISION = re.compile(r"\bdecisions?(?:/| )(\d{4})")
_STATUS = re.compile(r"in force|changed by (?:\[\d{4}\]\([\w.-]+\)(?:, | and )?)+")


@cache
def prose(page: str) -> str:
    """Without code, in which brackets are no links."""
    text = (ROOT / page).read_text("utf-8")
    text = re.sub(r"^\s*(```|~~~).*?^\s*\1", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", lambda code: code[0].replace("(", " "), text)


@cache
def anchors(page: str) -> set[str]:
    """As GitHub makes them of headings."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE):
        text = re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "", heading).lower()).replace(" ", "-")
        number = next(n for n in range(100) if (f"{text}-{n}" if n else text) not in found)
        found.add(f"{text}-{number}" if number else text)
    return found


def is_dead(target: str, folder: Path) -> bool:
    path, _, anchor = target.partition("#")
    file = (folder / path).resolve()
    if not file.exists():
        return True
    return bool(anchor) and (file.suffix != ".md" or anchor not in anchors(str(file.relative_to(ROOT))))


def dead_links(page: str) -> Iterator[str]:
    for found in _LINK.finditer(prose(page)):
        target = found[1] or found[2]
        relative = target if not target.startswith("#") else Path(page).name + target
        if not _ELSEWHERE.match(target) and is_dead(relative, (ROOT / page).parent):
            yield f"{page}: {target}"


def sources() -> Iterator[Path]:
    for name in SOURCES:
        path = ROOT / name
        for file in [path] if path.is_file() else sorted(path.rglob("*")):
            if "node_modules" in file.parts or file.suffix in BINARY or file == Path(__file__):
                continue
            if file.is_file():
                yield file


@cache
def decisions() -> dict[str, Path]:
    """Files by their number."""
    return {file.name[:4]: file for file in sorted(DECISIONS.glob("[0-9]*.md"))}


@pytest.mark.parametrize("page", PAGES)
def test_no_link_is_dead(page: str) -> None:
    assert list(dead_links(page)) == []


def test_pages_that_source_and_messages_name_exist() -> None:
    dead: list[str] = []
    for file in [*sources(), *(ROOT / page for page in PAGES)]:
        text = file.read_text("utf-8", errors="replace")
        page = file.relative_to(ROOT)
        dead += [f"{page}: {name}" for name in _NAMED.findall(text) if is_dead(name, ROOT)]
        dead += [f"{page}: decision {number}" for number in _NAMED_DECISION.findall(text) if number not in decisions()]
    assert dead == []


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs/README.md").read_text("utf-8")
    missing = [
        page
        for page in page_names()
        if page.startswith(("docs/use/", "docs/run/", "docs/change/"))
        and f"]({page.removeprefix('docs/')})" not in index
    ]
    assert missing == [], "Add a line for each of these to docs/README.md."


def test_every_decision_is_in_the_index_with_a_status() -> None:
    rows: dict[str, list[str]] = {}
    for line in (DECISIONS / "README.md").read_text("utf-8").splitlines():
        if line.startswith("| ["):
            number, title, status = (cell.strip() for cell in line.strip("|").split("|"))
            rows[number] = [title, status]
    expected = {f"[{number}]({file.name})" for number, file in decisions().items()}
    assert sorted(expected - set(rows)) == [], (
        "Add a line `| [NNNN](FILE) | title | in force |` to docs/decisions/README.md."
    )
    assert sorted(set(rows) - expected) == [], "docs/decisions/README.md lists decisions that have no file."
    wrong = [f"{number}: {status}" for number, (_, status) in rows.items() if not _STATUS.fullmatch(status)]
    assert wrong == [], "The status is `in force`, or `changed by` links to decisions."


def test_the_picture_of_the_layers_is_the_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["name"] == "Packages are layers")
    (picture,) = (block for block in all_blocks("docs/change/architecture.md") if block.section == "Layers")
    drawn = [line.split("  ")[0] for line in picture.text.splitlines()]
    assert drawn == [layer for layer in layers if layer != "__main__"], "docs/change/architecture.md draws other layers"


def test_dead_links_are_noticed() -> None:
    assert is_dead("docs/missing.md", ROOT)
    assert is_dead("docs/README.md#no-such-heading", ROOT)
    assert not is_dead("docs/README.md#run-it", ROOT)

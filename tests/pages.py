"""The fenced blocks of the README and the docs. A test that runs some asks for them here, in literal words, and by that
claims them: tests/unit/test_pages.py reads those words and fails for a block that nobody asks for."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from msgspec import Struct

ROOT = Path(__file__).parents[1]
# In the line before a block that cannot be run here. The reason is one of those that tests/unit/test_pages.py lists.
_NOT_RUN = re.compile(r"<!-- not run: (.+) -->")


class Block(Struct, frozen=True):
    page: str
    line: int
    language: str
    # The heading of the second level that it stands under.
    section: str
    text: str
    not_run: str | None

    @property
    def location(self) -> str:
        return f"{self.page}:{self.line}"


def page_names() -> list[str]:
    return ["README.md", *(str(file.relative_to(ROOT)) for file in sorted((ROOT / "docs").rglob("*.md")))]


def blocks_of(page: str, language: str, section: str | None = None) -> list[Block]:
    """Those that are to be run, in their order."""
    found = [
        block
        for block in all_blocks(page)
        if block.language == language and section in (None, block.section) and block.not_run is None
    ]
    assert found, f"{page} has no {language} blocks {section or ''}"
    return found


def texts_of(blocks: list[Block]) -> list[str]:
    return [block.text for block in blocks]


@cache
def all_blocks(page: str) -> tuple[Block, ...]:
    return tuple(_read(page, (ROOT / page).read_text("utf-8").splitlines()))


def _read(page: str, lines: list[str]) -> Iterator[Block]:
    section, begin, language = "", 0, ""
    for number, line in enumerate(lines, 1):
        fence = re.match(r"\s*(?:```|~~~)(.*)", line)
        if begin and fence:
            mark = _NOT_RUN.fullmatch(lines[begin - 2])
            text = "".join(f"{each}\n" for each in lines[begin : number - 1])
            yield Block(page, begin, language, section, text, mark[1] if mark else None)
            begin = 0
        elif fence:
            begin, language = number, fence[1].strip()
        elif not begin and line.startswith("## "):
            section = line.removeprefix("## ")
    assert not begin, f"{page}:{begin}: a block without an end"

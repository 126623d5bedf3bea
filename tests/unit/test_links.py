"""Links among the files of a session are followed as the kernel would, within bounds."""

import os
from pathlib import Path

import pytest

from quarterdeck.session_files.service import follow_links

LINKS = {
    "latest": "a/page",
    "d": "a",
    "up": "d/../latest",
    "b/deep": "../a/./",
    "a/back": "../b/deep/page",
    "dot": ".",
    "out": "a/../../x",
    "loop": "loop",
    "ping": "pong",
    "pong": "ping",
    "c/inner": "../b/deep",
    "c/over": "inner/../b/deep/page",
}
FILE = "a/page"


@pytest.mark.parametrize("path", [*LINKS, FILE, "d/page", "dot/dot/b/deep/page", "d/../x", "c/inner/../a/page", ".."])
def test_a_path_is_found_as_on_a_disk(tmp_path: Path, path: str) -> None:
    root = tmp_path / "root"
    for name in ("a", "b", "c"):
        (root / name).mkdir(parents=True)
    (root / FILE).write_text("x")
    for name, target in LINKS.items():
        (root / name).symlink_to(target)
    try:
        expected = os.path.relpath((root / path).resolve(strict=True), root)
    except (OSError, RuntimeError):
        expected = None
    found = follow_links(path, LINKS)
    if expected is not None and not expected.startswith(".."):
        assert found == ("" if expected == "." else expected)
    else:
        assert found is None or not (root / found).exists()


def test_links_are_bounded() -> None:
    chain = {f"{n}": f"{n + 1}" for n in range(41)}
    assert follow_links("1", chain) == "41"
    assert follow_links("0", chain) is None
    assert follow_links("a", {"a": "x/" * 2_000 + "../a"}) is None

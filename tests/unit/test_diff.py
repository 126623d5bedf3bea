"""The line diff: whatever the texts are, applying it to the one gives the other, and hostile texts cost no more."""

import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.core.settings import BundleSettings
from quarterdeck.skills.diff import changes, unified_diff
from quarterdeck.skills.model import SkillFile
from quarterdeck.skills.version_diff import Pair, differing, within_limits

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@\n")
_NO_NEWLINE = "\\ No newline at end of file\n"

# Few different lines repeat and move; any text at all brings line ends that are none.
_lines = st.lists(st.sampled_from(["a", "b", "c", "", "x\r", "-", "+", "@@ -1 +1 @@", "--- a/p"]), max_size=40)
_texts = st.builds(lambda lines, end: "\n".join(lines) + end, _lines, st.sampled_from(["", "\n"]))
_any_text = _texts | st.text(max_size=200)


def split(text: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def applied(base: str, diff: str) -> str:
    """As a strict `patch` would: every line of context and every removed line must be where the diff says."""
    old, new = split(base), ""
    at = 0
    written = split(diff)[2:] if diff else []
    position = 0
    while position < len(written):
        match = _HUNK.fullmatch(written[position])
        assert match, written[position]
        position += 1
        start, count, head_start, head_count = (int(part) if part else 1 for part in match.groups())
        first = start - 1 if count else start
        new += "".join(old[at:first])
        at = first
        assert split(new) == [] or new.endswith("\n")
        assert len(split(new)) == (head_start - 1 if head_count else head_start)
        taken = given_lines = 0
        while taken < count or given_lines < head_count:
            mark, line = written[position][0], written[position][1:]
            position += 1
            if position < len(written) and written[position] == _NO_NEWLINE:
                line, position = line.removesuffix("\n"), position + 1
            if mark in " -":
                assert old[at] == line
                at, taken = at + 1, taken + 1
            if mark in " +":
                new, given_lines = new + line, given_lines + 1
        assert (taken, given_lines) == (count, head_count)
    return new + "".join(old[at:])


@given(_any_text, _any_text)
def test_applying_the_diff_gives_the_other_version(base: str, head: str) -> None:
    diff = unified_diff("p", base, head)
    assert applied(base, diff) == head
    assert (diff == "") == (base == head)


@given(_texts, st.data())
def test_a_small_change_is_a_small_diff(text: str, data: st.DataObject) -> None:
    lines = split(text)
    position = data.draw(st.integers(0, len(lines)))
    changed = "".join([*lines[:position], "one line that is nowhere else\n", *lines[position:]])
    found = changes(split(text), split(changed))
    assert sum(one.head_end - one.head_start for one in found) <= 2
    assert sum(one.base_end - one.base_start for one in found) <= 1


def test_reads_as_people_expect() -> None:
    base = "".join(f"line {number}\n" for number in range(1, 21))
    head = base.replace("line 3\n", "line three\n").replace("line 18\n", "") + "end"
    assert unified_diff("my file.md", base, head) == (
        "--- a/my file.md\t\n+++ b/my file.md\t\n"
        "@@ -1,6 +1,6 @@\n line 1\n line 2\n-line 3\n+line three\n line 4\n line 5\n line 6\n"
        "@@ -15,6 +15,6 @@\n line 15\n line 16\n line 17\n-line 18\n line 19\n line 20\n+end\n"
        "\\ No newline at end of file\n"
    )
    assert unified_diff("new", None, "x\n") == "--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+x\n"
    assert unified_diff("old", "x\ny\n", None) == "--- a/old\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-x\n-y\n"
    assert unified_diff("empty", None, "") == ""


def test_a_moved_block_between_lines_that_repeat() -> None:
    """What `difflib` and a plain longest common subsequence tear apart at the braces."""
    base = "def a\n{\n}\n\ndef b\n{\n}\n"
    head = "def a\n{\n}\n\ndef c\n{\n}\n\ndef b\n{\n}\n"
    found = changes(split(base), split(head))
    assert [(one.base_start, one.base_end, one.head_start, one.head_end) for one in found] == [(4, 4, 4, 8)]


@pytest.mark.skipif(shutil.which("patch") is None, reason="no patch here")
@given(st.data())
def test_patch_accepts_the_diff(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    base, head = data.draw(_texts), data.draw(_texts)
    folder: Path = tmp_path_factory.mktemp("patched")
    (folder / "a b.txt").write_bytes(base.encode())
    diff = unified_diff("a b.txt", base, head)
    command = ["patch", "-p1", "--binary", "--quiet", "--no-backup-if-mismatch"]
    subprocess.run(command, input=diff.encode(), cwd=folder, check=True)
    patched = folder / "a b.txt"
    # What becomes empty, patch removes.
    assert (patched.read_bytes() if patched.exists() else b"") == head.encode()


_HOSTILE_BYTES = 256 * 1024
HOSTILE = {
    "one line again and again": ("\n" * _HOSTILE_BYTES, "a\n" + "\n" * (_HOSTILE_BYTES - 4) + "b\n"),
    "two lines in turns": ("a\nb\n" * (_HOSTILE_BYTES // 4), "b\na\na\n" * (_HOSTILE_BYTES // 6)),
    "all lines in reverse": tuple(
        "".join(f"{number:x}\n" for number in order) for order in (range(45_000), reversed(range(45_000)))
    ),
    "unique lines between repeated ones": (
        "".join(f"{number:x}\nz\n" for number in range(30_000)),
        "".join(f"{number:x}\nz\nz\n" for number in range(25_000)),
    ),
    # Each line is unique only once the one outside of it has been found.
    "nested": (
        "".join(f"{number:x}\n{number - 1:x}\n" for number in range(20_000)),
        "".join(f"{number - 1:x}\n{number:x}\n" for number in range(20_000)),
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_take_bounded_time(name: str) -> None:
    """`difflib` takes minutes for each of these."""
    base, head = HOSTILE[name]
    began = time.thread_time()
    diff = unified_diff("p", base, head)
    assert time.thread_time() - began < 8
    assert applied(base, diff) == head


# --- which files are compared ---


def file(path: str, content: str, size: int = 1, *, executable: bool = False) -> SkillFile:
    return SkillFile(path, size, content, executable)


def test_files_differ_by_content_and_mode() -> None:
    base = [file("gone", "1"), file("mode", "2"), file("same", "3"), file("text", "4")]
    head = [file("mode", "2", executable=True), file("new", "5"), file("same", "3"), file("text", "6")]
    assert [pair.sides[0].path for pair in differing(base, head)] == ["gone", "mode", "new", "text"]
    assert differing(base, base) == []


def test_files_are_read_up_to_the_limit() -> None:
    limits = BundleSettings(diff_file_bytes=10, diff_bytes=25)
    pairs = [
        Pair(file("a", "1", 10), file("a", "2", 10)),
        Pair(file("large", "1", 11), file("large", "2", 1)),
        Pair(None, file("too much", "2", 6)),
        Pair(None, file("fits", "2", 5)),
        Pair(file("mode", "1", 0), file("mode", "1", 0, executable=True)),
    ]
    assert {pair.sides[0].path for pair in within_limits(pairs, limits)} == {"a", "fits"}

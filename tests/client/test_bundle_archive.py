"""Packing skill folders: deterministic bytes, ignore files, links, refused files."""

import io
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quarterdeck.client import InvalidBundle
from quarterdeck.client.bundle_archive import IgnoreRules, bundle_files, open_archive, pack_folder, parse_patterns
from quarterdeck.core.settings import BundleSettings
from quarterdeck.skills.archive import read_bundle
from quarterdeck.skills.model import Bundle, BundleError
from quarterdeck.skills.paths import bundle_path

SKILL = "---\nname: demo\ndescription: d\n---\nBody.\n"


def write(folder: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def skill(folder: Path, **files: str | bytes) -> Path:
    return write(folder, {"SKILL.md": SKILL, **files})


def packed(folder: Path) -> bytes:
    with pack_folder(folder) as archive:
        return archive.read()


def read(archive: bytes) -> Bundle:
    return read_bundle(io.BytesIO(archive), BundleSettings())


def paths(folder: Path) -> list[str]:
    return [file.path for file in read(packed(folder)).manifest.files]


def test_same_content_same_bytes(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    names = ["a", "b/c", "b/d/e", "z"]
    skill(one, **dict.fromkeys(names, "x"))
    before = os.umask(0o077)
    try:
        skill(other, **dict.fromkeys(reversed(names), "x"))
    finally:
        os.umask(before)
    (other / "empty").mkdir()
    for path in other.rglob("*"):
        os.utime(path, (time.time() - 1e8, time.time() - 1e8))
    os.chmod(one / "a", 0o755)
    os.chmod(other / "a", 0o700)
    assert packed(one) == packed(other) == packed(one)
    # The modification time in the gzip header.
    assert packed(one)[4:8] == bytes(4)
    os.chmod(other / "a", 0o600)
    assert packed(one) != packed(other)
    manifest = {file.path: file.executable for file in read(packed(one)).manifest.files}
    assert manifest == {"SKILL.md": False, "a": True, "b/c": False, "b/d/e": False, "z": False}


name = st.text(
    st.characters(codec="utf-8", exclude_characters="/\\\0", exclude_categories=["C"]), min_size=1, max_size=40
)


def is_portable(text: str) -> bool:
    try:
        bundle_path(text.encode(), directory=False, limits=BundleSettings())
    except BundleError:
        return False
    return text not in (".", "..", ".git", ".gitignore", ".skillignore")


usable = name.filter(is_portable)
tree = st.recursive(
    st.tuples(st.binary(max_size=2000), st.booleans()),
    lambda inner: st.dictionaries(usable, inner, max_size=4),
    max_leaves=15,
)


def build(folder: Path, content: object) -> None:
    assert isinstance(content, dict)
    for key, value in content.items():
        path = folder / key
        try:
            if isinstance(value, dict):
                path.mkdir()
                build(path, value)
            else:
                path.write_bytes(value[0])
                path.chmod(0o755 if value[1] else 0o644)
        except OSError:
            # The name is too long for this file system.
            continue


@pytest.mark.long
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.dictionaries(usable, tree, max_size=6))
def test_the_server_reads_what_was_packed(tmp_path_factory: pytest.TempPathFactory, content: dict[str, object]) -> None:
    folder = skill(tmp_path_factory.mktemp("skill"))
    build(folder, {key: value for key, value in content.items() if key.casefold() != "skill.md"})
    try:
        bundle = read(packed(folder))
    except BundleError as fault:
        # Only the server checks names: bidirectional marks, and names that differ only in case.
        if not any(words in str(fault) for words in ("direction", "differ only in case", "needs a directory")):
            raise
        return
    found = {file.path: (file.bytes, file.executable) for file in bundle.manifest.files}
    expected = {
        str(path.relative_to(folder)): (path.stat().st_size, bool(path.stat().st_mode & 0o100))
        for path in folder.rglob("*")
        if path.is_file()
    }
    assert found == expected


def test_long_and_foreign_names(tmp_path: Path) -> None:
    deep = "/".join(["d" * 90] * 4) + "/" + "n" * 200
    skill(tmp_path, **{deep: "x", "größe/日本語.md": "y"})
    assert sorted(paths(tmp_path)) == sorted(["SKILL.md", deep, "größe/日本語.md"])


def test_links_are_followed_inside(tmp_path: Path) -> None:
    folder = skill(tmp_path / "skill", **{"real/one.md": "1"})
    (folder / "link.md").symlink_to("real/one.md")
    (folder / "folder").symlink_to("real")
    (folder / "deep").mkdir()
    (folder / "deep" / "up.md").symlink_to("../SKILL.md")
    assert paths(folder) == ["SKILL.md", "deep/up.md", "folder/one.md", "link.md", "real/one.md"]
    # The folder itself may be a link.
    (tmp_path / "alias").symlink_to(folder)
    assert packed(tmp_path / "alias") == packed(folder)


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("../secret", "points outside"),
        ("/etc/hosts", "points outside"),
        ("../outside", "points outside"),
        ("nothing", "is broken"),
        (".", "a folder that contains it"),
        ("..", "points outside"),
        (".git/config", r"into \.git"),
        ("link", "is broken"),
    ],
)
def test_unsafe_links_are_refused(tmp_path: Path, target: str, reason: str) -> None:
    write(tmp_path, {"secret": "s", "outside/x": "x"})
    folder = skill(tmp_path / "skill", **{".git/config": "c", "sub/x": "x"})
    (folder / "link").symlink_to(target)
    with pytest.raises(InvalidBundle, match=reason) as refused:
        packed(folder)
    assert str(folder / "link") in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_cycle_of_links_is_refused(tmp_path: Path) -> None:
    folder = skill(tmp_path, **{"a/x": "x", "b/x": "x"})
    (folder / "a" / "b").symlink_to("../b")
    (folder / "b" / "a").symlink_to("../a")
    with pytest.raises(InvalidBundle, match="a folder that contains it"):
        packed(folder)


def test_special_files_are_refused(tmp_path: Path) -> None:
    folder = skill(tmp_path)
    os.mkfifo(folder / "pipe")
    with pytest.raises(InvalidBundle, match="neither a file nor a folder"):
        packed(folder)


def test_a_file_name_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    folder = skill(tmp_path)
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff")).write_text("x")
    with pytest.raises(InvalidBundle, match="not UTF-8"):
        packed(folder)


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({}, "no SKILL.md found"),
        ({"skill.md": SKILL}, "no SKILL.md found"),
        ({"sub/SKILL.md": SKILL}, "no SKILL.md found"),
        ({"SKILL.md": SKILL, ".skillignore": "*.md\n"}, "ignored by a .gitignore or .skillignore"),
    ],
)
def test_a_folder_without_a_skill_md_is_refused(tmp_path: Path, files: dict[str, str | bytes], reason: str) -> None:
    with pytest.raises(InvalidBundle, match=reason):
        packed(write(tmp_path, files))


def test_a_missing_or_unreadable_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidBundle, match="no such file or folder"):
        open_archive(tmp_path / "nothing")
    (tmp_path / "link").symlink_to("nothing")
    with pytest.raises(InvalidBundle, match="no such file or folder"):
        open_archive(str(tmp_path / "link"))
    with pytest.raises(InvalidBundle):
        open_archive(tmp_path / "link" / ("x" * 300))


def test_a_file_that_changes_while_it_is_packed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = skill(tmp_path, log="x")
    real = os.fstat

    def smaller(handle: int) -> os.stat_result:
        found = real(handle)
        return os.stat_result((*found[:6], 0, *found[7:]))

    monkeypatch.setattr(os, "fstat", smaller)
    with pytest.raises(InvalidBundle, match="changed while it was packed"):
        packed(folder)


def test_git_is_ignored_and_skillignore_wins(tmp_path: Path) -> None:
    folder = skill(
        tmp_path,
        **{
            ".git/HEAD": "x",
            "vendor/.git": "gitdir: elsewhere",
            "vendor/x": "x",
            ".gitignore": "build/\n*.log\n",
            ".skillignore": "!keep.log\ndrafts\n.*ignore\n",
            "build/out": "x",
            "keep.log": "x",
            "other.log": "x",
            "drafts/one": "x",
            "sub/.gitignore": "!other.log\n/only-here\n",
            "sub/other.log": "x",
            "sub/only-here": "x",
            "sub/deep/only-here": "x",
        },
    )
    assert paths(folder) == ["SKILL.md", "keep.log", "sub/deep/only-here", "sub/other.log", "vendor/x"]


PATTERNS = [
    "a", "*.txt", "/a", "a/", "a/b", "/a/b", "**/b", "a/**", "a/**/c", "**", "*", "?", "a?", "[ab]", "[!ab]", "[^ab]",
    "[a-c]x", "[]]", "[]-a]", "[a", "[[:nonsense:]]", "\\a", "\\!x", "!a",
    "!*.txt", "!b/", "\\#x", "#a", "a ", "a\\ ", "  a", "a**b", "**a", "b/**/", "/**/c", "*/b", "*/*/c",
    "a/*", "!a/b", "é", "??", "[é]", "a\\", "/", "//", "!", "!/", "a//b", "***", ".*", "[a-]", "[--0]",
    "x*x*x", "x?**/b",
]  # fmt: skip
NAMES = ["a", "b", "c", "ax", "xab", "é", "x.txt", "b.txt", "!x", "#x", "a ", "]", "-", "ab", ".h", "1x", "[a", "\\a"]


TREES = [
    ["a/b/c", "a/x.txt", "a/d/c", "b/a", "b/c/b", "c", "ab", "x.txt", "é", ".h", "!x", "a b", "xaxbx"],
    ["a", "b", "d/a/b", "d/c", "d/b/c", "d/x.txt", "1x", "]", "#x", "a ", "-", "[a", "\\a", "ax", "d/ab", "bx"],
]
# Patterns that may match the same file, tested in every order of two.
PAIRED = ["a", "*", "*.txt", "/a", "a/", "a/b", "**/b", "a/**", "a/**/c", "d/*", "[ab]", "b", "/d", "**", "c"]

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def kept_by_git(folder: Path) -> set[bytes]:
    nowhere = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "HOME": str(folder)}
    clean = {"PATH": os.environ["PATH"], **nowhere}
    subprocess.run(["git", "init", "-q"], cwd=folder, env=clean, check=True)
    command = ["git", "ls-files", "-z", "--others", "--exclude-per-directory=.gitignore"]
    listed = subprocess.run(command, cwd=folder, env=clean, check=True, capture_output=True).stdout
    return set(listed.split(b"\0")) - {b""}


def packed_by_us(folder: Path) -> set[bytes]:
    return {file.name for file in bundle_files(folder)}


SINGLE = [[pattern] for pattern in PATTERNS]
NEGATED = [["*", "!*/", f"!{one}"] for one in PATTERNS]
PAIRS = [[one, f"!{other}"] for one in PAIRED for other in PAIRED]


@needs_git
@pytest.mark.parametrize("cases", [SINGLE, NEGATED, pytest.param(PAIRS, marks=pytest.mark.long)])
def test_ignores_what_git_ignores(tmp_path: Path, cases: list[list[str]]) -> None:
    """Every case is a folder of one repository, so that git runs once."""
    for number, lines in enumerate(cases):
        for tree, files in enumerate(TREES):
            folder = tmp_path / f"{number}-{tree}"
            write(folder, dict.fromkeys(files, ""))
            (folder / ".gitignore").write_bytes(("\ufeff" * tree + "\n".join(lines) + "\r\n" * tree).encode())
    ours, gits = packed_by_us(tmp_path), kept_by_git(tmp_path)
    assert 0 < len(gits) < sum(map(len, TREES)) * len(cases)
    wrong = {path.partition(b"/")[0] for path in ours ^ gits}
    assert not wrong, [cases[int(name.partition(b"-")[0])] for name in wrong]


@pytest.mark.long
@needs_git
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=6),
    st.lists(st.sampled_from(PATTERNS), max_size=4),
    st.sets(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4).map("/".join), min_size=1, max_size=25),
)
def test_nested_ignore_files_apply_as_in_git(
    tmp_path_factory: pytest.TempPathFactory, root: list[str], inner: list[str], files: set[str]
) -> None:
    folder = tmp_path_factory.mktemp("repository")
    for file in sorted(files):
        try:
            write(folder, {file: "x"})
        except OSError:
            # The path exists as a folder, or lies below a file.
            continue
    (folder / ".gitignore").write_text("\n".join(root))
    for below in (folder / "a", folder / "b"):
        if below.is_dir():
            (below / ".gitignore").write_text("\n".join(inner))
    assert packed_by_us(folder) == kept_by_git(folder)
    shutil.rmtree(folder)


@given(st.binary(max_size=100))
def test_an_ignore_file_may_hold_any_bytes(text: bytes) -> None:
    IgnoreRules(b"", parse_patterns(text)).verdict(b"some/path.txt", is_folder=False)

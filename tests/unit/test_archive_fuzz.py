"""Archives put together from parts that are right, wrong or nearly right. Whatever comes out is refused by a fault of
our own, or is within every limit and safe to unpack; and it takes no more work or memory than its limits say."""

import io
import tracemalloc
import unicodedata
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from quarterdeck.core.settings import BundleSettings
from quarterdeck.skills.archive import read_bundle
from quarterdeck.skills.model import Bundle, BundleError
from tests.fuzzing import cases
from tests.unit.archives import (
    GNU,
    PLAIN_GZIP,
    SKILL_MD,
    USTAR,
    V7,
    base256,
    file,
    frontmatter,
    gzip,
    gzip_start,
    header,
    long_name,
    padded,
    pax,
    pax_record,
    skill_md,
    tar,
)

KIB = 1024
# So small that most of what is generated comes to one of them.
SMALL = BundleSettings(
    unpacked_bytes=16 * KIB,
    entries=6,
    skill_md_bytes=2 * KIB,
    frontmatter_bytes=KIB,
    frontmatter_depth=5,
    frontmatter_nodes=40,
    path_bytes=60,
    path_levels=4,
    path_component_bytes=20,
    all_paths_bytes=150,
    extended_header_bytes=512,
    unpacking_seconds=5.0,
)
MEMORY_BYTES = 2 * KIB * KIB


class Counting(io.BytesIO):
    """Every byte that is asked for counts as a step of work."""

    taken = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.taken += len(data)
        return data


def outcome(archive: bytes, limits: BundleSettings = SMALL) -> Bundle | BundleError:
    source = Counting(archive)
    try:
        result: Bundle | BundleError = read_bundle(source, limits)
    except BundleError as fault:
        result = fault
    assert source.taken <= len(archive), "nothing is read twice"
    if isinstance(result, BundleError):
        assert result.message.isprintable()
        assert len(result.message) < 1500
    else:
        check_safe(result)
    return result


def check_safe(bundle: Bundle) -> None:
    files, paths = bundle.manifest.files, [file.path for file in bundle.manifest.files]
    assert len(files) <= SMALL.entries
    assert sum(file.bytes for file in files) == bundle.manifest.unpacked_bytes <= SMALL.unpacked_bytes
    assert sum(len(path.encode()) for path in paths) <= SMALL.all_paths_bytes
    assert "SKILL.md" in paths
    # Two names that are one on some disk would overwrite each other.
    assert len({unicodedata.normalize("NFC", path).casefold() for path in paths}) == len(paths)
    for path in paths:
        parts = path.split("/")
        assert len(path.encode()) <= SMALL.path_bytes
        assert len(parts) <= SMALL.path_levels
        assert not {"", ".", ".."} & set(parts), path
        assert path.isprintable()
        assert "\\" not in path


# --- the parts ---

names = st.sampled_from(
    [
        b"a",
        b"A",
        b"a/b",
        b"a/b/c/d/e",
        b"../a",
        b"/a",
        b"a//b",
        b"./a",
        b"a/.",
        b"a\\b",
        b"\xff",
        b"a" * 30,
        b"\0a",
        b"con",
    ]
) | st.binary(max_size=30)
octal = st.integers(0, 8**11 - 1).map(lambda value: b"%011o\0" % value)
sizes = st.integers(0, 3000) | octal | st.integers(-(2**70), 2**70).map(base256) | st.binary(max_size=12)
# Most are files: one that is refused for its type says nothing of its name or size.
kinds = st.just(b"0") | st.sampled_from(
    [b"0", b"\0", b"5", b"1", b"2", b"3", b"6", b"7", b"x", b"g", b"L", b"K", b"S", b"V", b"Z"]
)
magics = st.sampled_from([USTAR, GNU, V7, b"ustar\x0011"])
contents = st.binary(max_size=1500)
headers = st.builds(
    lambda name, size, kind, mode, magic, prefix, link, data: (
        header(name, size=size, kind=kind, mode=mode, magic=magic, prefix=prefix, link=link) + padded(data)
    ),
    names,
    sizes,
    kinds,
    st.integers(0, 0o7777) | st.binary(max_size=8),
    magics,
    st.just(b"") | names,
    st.just(b"") | names,
    contents,
)
keys = st.sampled_from([b"path", b"linkpath", b"size", b"mtime", b"GNU.sparse.size", b"SCHILY.xattr.x", b"comment"])
values = names | st.integers(-5, 2**70).map(lambda number: b"%d" % number) | st.binary(max_size=700)
records = st.lists(st.tuples(keys | st.binary(max_size=5), values).map(lambda pair: pax_record(*pair)), max_size=4)
extended = st.builds(
    lambda body, kind: pax(body, kind=kind), records.map(b"".join) | contents, st.sampled_from([b"x", b"g"])
)
right = st.builds(file, st.sampled_from([b"a.txt", b"docs/b.txt", b"docs/c"]), contents)
long_names = st.builds(lambda name, kind: long_name(name, kind=kind), names, st.sampled_from([b"L", b"K"]))
named = st.builds(file, names, contents)
entries = st.lists(right | named | headers | extended | long_names, max_size=9)

components = st.sampled_from(
    [
        b"..",
        b".",
        b"",
        b"a",
        b"A",
        b"b.txt",
        b"c" * 25,
        b"d:",
        b"e\\f",
        b"\x1b",
        *(text.encode() for text in ("é", "e\u0301")),
    ]
)
paths = st.lists(components, min_size=1, max_size=5).map(b"/".join)

scalars = st.sampled_from(["1", "~", "'x'", '"\\u0000"', "|\n x", "&a 1", "*a", "!!str 1", "<<", "é", "- x"])
trees: st.SearchStrategy[str] = st.recursive(
    scalars | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=6).map(lambda items: f"[{', '.join(items)}]")
        | st.lists(st.tuples(inner, inner), max_size=5).map(
            lambda pairs: "{" + ", ".join(f"{key}: {value}" for key, value in pairs) + "}"
        )
    ),
    max_leaves=60,
)
deep = st.integers(1, 12).map(lambda levels: "[" * levels + "]" * levels)
wide = st.integers(1, 60).map(lambda count: f"[{'1, ' * count}]")
starts = st.just(PLAIN_GZIP) | st.builds(
    gzip_start, extra=contents, name=st.binary(max_size=20), comment=st.binary(max_size=20), header_crc=st.booleans()
)


@settings(max_examples=cases(150))
@given(entries, st.integers(0, 3), st.booleans())
def test_entries(parts: list[bytes], end_blocks: int, skill_first: bool) -> None:
    ordered = [skill_md(), *parts] if skill_first else [*parts, skill_md()]
    outcome(gzip(tar(*ordered, end_blocks=end_blocks)))


@settings(max_examples=cases(200))
@given(st.integers(0, 8), st.lists(paths, min_size=1, max_size=2), st.integers(0, 6000))
def test_paths(good: int, odd: list[bytes], size: int) -> None:
    """At most two things are wrong, so that one is not refused for the sake of another."""
    files = [file(b"%d/f" % number, bytes(size)) for number in range(good)]
    outcome(gzip(tar(skill_md(), *files, *(file(path) for path in odd))))


@settings(max_examples=cases(80))
@given(st.lists(st.tuples(starts, contents | st.just(tar(skill_md()))), max_size=4), contents, st.data())
def test_gzip_members(members: list[tuple[bytes, bytes]], rest: bytes, data: st.DataObject) -> None:
    archive = b"".join(gzip(content, start=start) for start, content in members) + rest
    outcome(archive)
    if archive:
        outcome(archive[: data.draw(st.integers(0, len(archive) - 1))])


@settings(max_examples=cases(150))
@given(trees | deep | wide, st.sampled_from(["x: ", "", "name: ", "? "]))
def test_frontmatter(tree: str, before: str) -> None:
    text = (before + tree).encode("utf-8", "surrogatepass")
    result = outcome(gzip(tar(skill_md(frontmatter(text)))))
    if isinstance(result, Bundle):
        assert depth(result.frontmatter) <= SMALL.frontmatter_depth
        assert nodes(result.frontmatter) <= SMALL.frontmatter_nodes


def depth(value: Any) -> int:
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth, inner), default=0)


def nodes(value: Any) -> int:
    inner = [*value.values(), *value] if isinstance(value, dict) else value if isinstance(value, list) else []
    return 1 + sum(map(nodes, inner))


@settings(max_examples=cases(60))
@given(
    st.sampled_from([b"path", b"comment", b"linkpath"]),
    st.integers(1, 400_000),
    st.integers(1, 40),
    st.sampled_from([b"x", b"g", b"L", b"0"]),
)
def test_highly_compressed_archives_need_little_memory(key: bytes, size: int, times: int, kind: bytes) -> None:
    """A few kilobytes that stand for megabytes, wherever they are put."""
    body = pax_record(key, b"a" * size) if kind in (b"x", b"g") else b"a" * size
    entry = header(b"big", size=len(body), kind=kind, magic=GNU if kind == b"L" else USTAR) + padded(body)
    archive = gzip(tar(skill_md(), *[entry] * times))
    tracemalloc.start()
    try:
        outcome(archive)
        assert tracemalloc.get_traced_memory()[1] < MEMORY_BYTES
    finally:
        tracemalloc.stop()


def test_valid_archives_are_accepted() -> None:
    """Were everything refused, the tests above would say nothing."""
    whole = gzip(tar(skill_md(SKILL_MD), file(b"docs/a.txt", b"x" * 100), file(b"b.txt")))
    assert isinstance(outcome(whole), Bundle)

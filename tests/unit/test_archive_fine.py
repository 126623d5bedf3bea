"""Unusual archives that real writers make: all are read, and the same content gives the same list."""

import hashlib
import io
import random
import threading
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from quarterdeck.core.settings import BundleSettings
from quarterdeck.skills.archive import read_bundle
from quarterdeck.skills.model import Bundle, BundleError
from tests.unit.archives import (
    BLOCK,
    GNU,
    SKILL_MD,
    V7,
    base256,
    bundle,
    bundle_with,
    directory,
    file,
    frontmatter,
    gzip,
    gzip_pieces,
    gzip_start,
    header,
    long_name,
    padded,
    pax,
    pax_record,
    skill_md,
    tar,
)

LIMITS = BundleSettings()
MIB = 1024 * 1024

SCRIPT = b"#!/bin/sh\n"
PATH = b"scripts/run.sh"
LONG_PATH = b"/".join([b"scripts", *[b"d" * 60] * 3, b"run.sh"])


def read(archive: bytes, limits: BundleSettings = LIMITS) -> Bundle:
    return read_bundle(io.BytesIO(archive), limits)


def split_members() -> bytes:
    whole = tar(skill_md(), file(PATH, SCRIPT, mode=0o755))
    return b"".join(gzip(whole[start : start + 100]) for start in range(0, len(whole), 100))


# Each holds SKILL.md and one executable script, and differs in how it was packed.
SAME: dict[str, Callable[[], bytes]] = {
    "ustar": lambda: bundle(file(PATH, SCRIPT, mode=0o755)),
    "GNU": lambda: bundle(file(PATH, SCRIPT, mode=0o755, magic=GNU)),
    "V7": lambda: bundle(file(PATH, SCRIPT, mode=0o755, magic=V7, kind=b"\0")),
    "V7 with directory by its slash": lambda: bundle(
        file(b"scripts/", magic=V7, kind=b"\0"), file(PATH, SCRIPT, mode=0o755, magic=V7, kind=b"\0")
    ),
    "old type in a ustar header": lambda: bundle(file(PATH, SCRIPT, mode=0o755, kind=b"\0")),
    "ustar prefix": lambda: bundle(file(b"run.sh", SCRIPT, mode=0o755, prefix=b"scripts")),
    "./ everywhere": lambda: gzip(
        tar(
            directory(b"./"),
            file(b"./SKILL.md", SKILL_MD),
            directory(b"./scripts/"),
            file(b"./scripts/run.sh", SCRIPT, mode=0o755),
        )
    ),
    "././": lambda: bundle(file(b"././" + PATH, SCRIPT, mode=0o755)),
    "root directory as a dot": lambda: bundle(directory(b"."), file(PATH, SCRIPT, mode=0o755)),
    "directory without slash": lambda: bundle(directory(b"scripts"), file(PATH, SCRIPT, mode=0o755)),
    "directory after its file": lambda: bundle(file(PATH, SCRIPT, mode=0o755), directory(b"scripts/")),
    "GNU long name": lambda: bundle(long_name(PATH), file(b"scr", SCRIPT, mode=0o755, magic=GNU)),
    "PAX path": lambda: bundle(pax({b"path": PATH}), file(b"scr", SCRIPT, mode=0o755)),
    "PAX size that agrees": lambda: bundle(pax({b"size": b"10"}), file(PATH, SCRIPT, mode=0o755)),
    "PAX times and owners": lambda: bundle(
        pax({b"mtime": b"1.5", b"atime": b"-1", b"uid": b"9999999", b"uname": b"\xff", b"comment": b"a=b\nc"}),
        file(PATH, SCRIPT, mode=0o755),
    ),
    "PAX of vendors": lambda: bundle(
        pax(
            {
                b"SCHILY.xattr.user.x": bytes(range(256)),
                b"LIBARCHIVE.creationtime": b"1",
                b"RHT.security.selinux": b"u:object_r\0",
                b"SCHILY.dev": b"1",
            }
        ),
        file(PATH, SCRIPT, mode=0o755),
    ),
    "PAX header as large as may be": lambda: bundle(pax({b"comment": b"x" * 65_520}), file(PATH, SCRIPT, mode=0o755)),
    "PAX names said to be UTF-8": lambda: bundle(
        pax({b"hdrcharset": b"ISO-IR 10646 2000 UTF-8"}), file(PATH, SCRIPT, mode=0o755)
    ),
    "PAX header with nothing in it": lambda: bundle(pax({}), file(PATH, SCRIPT, mode=0o755)),
    "PAX mtime twice": lambda: bundle(pax(pax_record(b"mtime", b"1") * 2), file(PATH, SCRIPT, mode=0o755)),
    "git archive": lambda: gzip(
        tar(pax({b"comment": b"0" * 40}, kind=b"g"), skill_md(), file(PATH, SCRIPT, mode=0o775))
    ),
    "no end blocks": lambda: gzip(tar(skill_md(), file(PATH, SCRIPT, mode=0o755), end_blocks=0)),
    "one end block": lambda: gzip(tar(skill_md(), file(PATH, SCRIPT, mode=0o755), end_blocks=1)),
    "padded to 20 blocks": lambda: gzip(
        tar(skill_md(), file(PATH, SCRIPT, mode=0o755), end_blocks=16),
    ),
    "padded to a megabyte": lambda: gzip(tar(skill_md(), file(PATH, SCRIPT, mode=0o755)) + bytes(MIB + 5)),
    "several members": split_members,
    "an empty member in between": lambda: (
        gzip(tar(skill_md(), end_blocks=0)) + gzip(b"") + gzip(tar(file(PATH, SCRIPT, mode=0o755)))
    ),
    "zeros after the gzip data": lambda: bundle(file(PATH, SCRIPT, mode=0o755)) + bytes(100_000),
    "gzip header with all fields": lambda: gzip(
        tar(skill_md(), file(PATH, SCRIPT, mode=0o755)),
        start=gzip_start(extra=b"AB\x02\0xy", name=b"x.tar", comment=b"c" * 99_999, header_crc=True),
    ),
    "signed checksum": lambda: bundle(
        file("é/".encode(), kind=b"\0", magic=V7, signed=True), file(PATH, SCRIPT, mode=0o755)
    ),
    "size in base 256": lambda: bundle(header(PATH, size=base256(10), mode=0o755) + padded(SCRIPT)),
    "numbers with spaces": lambda: bundle(header(PATH, size=b"         12 ", mode=b"   755 \0") + padded(SCRIPT)),
    "type bits in the mode": lambda: bundle(file(PATH, SCRIPT, mode=0o100755)),
    "executable for one": lambda: bundle(file(PATH, SCRIPT, mode=0o010)),
    "padding that is not zero": lambda: gzip(
        tar(skill_md(), header(PATH, size=10, mode=0o755) + SCRIPT + b"x" * (BLOCK - 10))
    ),
    "name with bytes behind its NUL": lambda: bundle(file(PATH + b"\0junk", SCRIPT, mode=0o755)),
}

# A SKILL.md that is fine, and what one of its keys must say.
SKILLS: dict[str, tuple[bytes, str, Any]] = {
    "byte order mark": (b"\xef\xbb\xbf" + SKILL_MD, "name", "pdf-tools"),
    "CRLF": (SKILL_MD.replace(b"\n", b"\r\n"), "description", "Fill in PDF forms."),
    "empty body": (frontmatter(), "name", "pdf-tools"),
    "no line end at the end": (frontmatter().rstrip(), "name", "pdf-tools"),
    "spaces behind the fences": (SKILL_MD.replace(b"---\n", b"--- \t\n"), "name", "pdf-tools"),
    "a rule in the body": (SKILL_MD + b"\n---\nmore: [\n---\n", "name", "pdf-tools"),
    "unquoted colon": (b"---\nname: a\ndescription: Use: when asked\n---\n", "description", "Use: when asked"),
    "date": (frontmatter(b"released: 2024-01-31"), "released", "2024-01-31"),
    "large integer": (frontmatter(b"id: 9007199254740993"), "id", "9007199254740993"),
    "not a number": (frontmatter(b"x: [.nan, .inf, -.INF]"), "x", [".nan", ".inf", "-.INF"]),
    "32 levels": (frontmatter(b"x: " + b"[" * 31 + b"]" * 31)[:-1], "name", "pdf-tools"),
    "as large as may be": (SKILL_MD + b"x" * (MIB - len(SKILL_MD)), "name", "pdf-tools"),
    "frontmatter as large as may be": (frontmatter(b"x: " + b"x" * 65_480), "name", "pdf-tools"),
}


def deep() -> bytes:
    return bundle(*(file(b"%04d/" % number + b"a/" * 30 + b"f") for number in range(LIMITS.entries - 1)))


def full() -> bytes:
    size = LIMITS.unpacked_bytes - len(SKILL_MD)
    zeros = [bytes(MIB)] * (size // MIB) + [bytes(size % MIB)]
    return gzip_pieces([skill_md(), header(b"zeros", size=size), *zeros, bytes(-size % BLOCK)])


LARGE: dict[str, Callable[[], bytes]] = {
    "as many entries as may be, 32 levels deep": deep,
    "as much as may be unpacked": full,
    "path as long as may be": lambda: bundle(
        pax({b"path": b"/".join([b"a" * 255] * 3 + [b"b" * 254, b"c"])}), file(b"x")
    ),
    "blocks of 64 KiB, each a member": lambda: gzip(tar(skill_md())) + gzip(bytes(65_280)) * 2000,
}

FINE: dict[str, Callable[[], bytes]] = {
    **SAME,
    **{name: lambda data=data: bundle_with(data) for name, (data, _, _) in SKILLS.items()},  # type: ignore[misc]
    **LARGE,
}


@pytest.mark.long
@pytest.mark.parametrize("name", FINE)
def test_is_read_in_time_and_little_memory(name: str) -> None:
    archive = FINE[name]()
    start = time.process_time()
    read(archive)
    assert time.process_time() - start < 1.0
    # Tracing takes several times as long as what it traces, and is not the archive's cost.
    patient = BundleSettings(unpacking_seconds=5.0)
    tracemalloc.start()
    try:
        read(archive, patient)
        assert tracemalloc.get_traced_memory()[1] < 64 * MIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", SAME)
def test_same_content_gives_the_same_files(name: str) -> None:
    archive = SAME[name]()
    got = read(archive)
    assert [(file.path, file.bytes, file.executable) for file in got.manifest.files] == [
        ("SKILL.md", len(SKILL_MD), False),
        ("scripts/run.sh", len(SCRIPT), True),
    ]
    assert [file.sha256 for file in got.manifest.files] == [
        hashlib.sha256(SKILL_MD).hexdigest(),
        hashlib.sha256(SCRIPT).hexdigest(),
    ]
    assert got.manifest.unpacked_bytes == len(SKILL_MD) + len(SCRIPT)
    assert got.manifest.archive_sha256 == hashlib.sha256(archive).hexdigest()
    assert got.bundle_bytes == len(archive)
    assert got.frontmatter == {"name": "pdf-tools", "description": "Fill in PDF forms."}


@pytest.mark.parametrize("name", SKILLS)
def test_skill_md_is_read(name: str) -> None:
    data, key, value = SKILLS[name]
    assert read(bundle_with(data)).frontmatter[key] == value


@pytest.mark.parametrize(
    "entries",
    [
        [long_name(LONG_PATH), file(LONG_PATH[:100], magic=GNU)],
        [pax({b"path": LONG_PATH}), file(b"short")],
        [file(LONG_PATH[130:], prefix=LONG_PATH[:129])],
    ],
    ids=["GNU", "PAX", "ustar"],
)
def test_long_paths_are_the_same_from_every_writer(entries: list[bytes]) -> None:
    assert read(bundle(*entries)).manifest.files[1].path == LONG_PATH.decode()


def test_an_extended_header_describes_one_entry_only() -> None:
    files = read(bundle(pax({b"path": b"renamed"}), file(b"a"), file(b"b"))).manifest.files
    assert [file.path for file in files] == ["SKILL.md", "b", "renamed"]


def test_files_are_sorted_by_path_and_directories_left_out() -> None:
    entries = [directory(b"empty/"), file(b"b"), file("é".encode()), file(b"a/c"), file(b"a.b"), file(b"A-Z")]
    paths = [file.path for file in read(bundle(*entries)).manifest.files]
    assert paths == ["A-Z", "SKILL.md", "a.b", "a/c", "b", "é"]


def test_similar_names_are_different_files() -> None:
    names = [b"a", b"a.b", b"ab", b"a b", b"b/a", b"b.a/a", b"..a", b"...a", b" a", b"a-", b"a~"]
    assert len(read(bundle(*map(file, names))).manifest.files) == len(names) + 1


@pytest.mark.parametrize(
    "path",
    [
        "漢字/かな.md",
        "한국어.md",
        "emoji 👍🏽.md",
        "family 👨\u200d👩\u200d👧.md",
        "rainbow 🏳\ufe0f\u200d🌈",
        "heart ❤\ufe0f.md",
        "keycap 1\ufe0f\u20e3.md",
        "می\u200cشود.md",
        "ශ්\u200dරී.md",
        "flag 🇫🇷",
        "e\u0301.md",
        "Screenshot 10.00\u202fAM.png",
        "console.md",
        "con-fig/auxiliary.txt",
        "com10.txt",
        "null",
        "lpt.md",
        ".con",
        "a.con",
        "(a) [b] {c} #d $e %f &g 'h' +i ,j ;k =l @m !n `o ^p ~q.md",
    ],
)
def test_names_in_many_scripts_and_near_reserved_ones(path: str) -> None:
    assert [file.path for file in read(bundle(file(path.encode()))).manifest.files if file.path != "SKILL.md"] == [path]


def test_contents_are_written_one_after_the_other() -> None:
    large = random.Random(1).randbytes(1_000_000)
    archive = bundle(file(b"z.bin", large), file(b"empty"), file(b"a/again.bin", large), file(b"b.txt", b"b"))
    contents = io.BytesIO()
    read_files = read_bundle(io.BytesIO(archive), LIMITS, contents)
    for one in read_files.manifest.files:
        start = read_files.starts[one.sha256]
        assert hashlib.sha256(contents.getvalue()[start : start + one.bytes]).hexdigest() == one.sha256, one.path
    assert len(contents.getvalue()) == read_files.manifest.unpacked_bytes


def test_reads_from_where_the_source_stands() -> None:
    archive = bundle()
    source = io.BytesIO(b"earlier" + archive)
    source.seek(7)
    assert read_bundle(source, LIMITS).bundle_bytes == len(archive)


def test_a_source_may_answer_in_small_pieces() -> None:
    class Dripping(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(1)

    archive = split_members()
    assert read_bundle(Dripping(archive), LIMITS) == read(archive)


def test_hashes_of_large_archives_are_correct() -> None:
    noise = random.Random(5)
    sizes = (3 * MIB + 17, 0, 1, MIB, 700, MIB)
    contents = {f"{number}.bin": noise.randbytes(size) for number, size in enumerate(sizes)}
    archive = bundle(*(file(path.encode(), content) for path, content in contents.items()))
    got = read(archive)
    sums = {path: hashlib.sha256(content).hexdigest() for path, content in contents.items()}
    assert {file.path: file.sha256 for file in got.manifest.files if file.path != "SKILL.md"} == sums
    assert got.manifest.archive_sha256 == hashlib.sha256(archive).hexdigest()
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("sums")] == []


def test_a_large_archive_that_is_refused_leaves_no_thread() -> None:
    archive = bundle(file(b"large.bin", random.Random(6).randbytes(3 * MIB)))
    with pytest.raises(BundleError, match="truncated"):
        read(archive[:-2000])
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("sums")] == []

"""Archives nobody thought of: what writers make of random files, and what is left of an archive after damage."""

import io
import random
import tarfile
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quarterdeck.core.settings import BundleSettings
from quarterdeck.skills.archive import read_bundle
from quarterdeck.skills.model import Bundle, BundleError, SkillFile
from tests.fuzzing import REPEATED, cases
from tests.unit.archives import (
    BLOCK,
    SKILL_MD,
    directory,
    file,
    frontmatter,
    gzip,
    long_name,
    pax,
    skill_md,
    tar,
)

LIMITS = BundleSettings()

# Folders have no dot and files do, so that no file is a folder; small letters only, so that none differ in case.
FOLDER = st.text("abcxyz012-_ éß漢😀", min_size=1, max_size=30).filter(lambda name: name[-1] != " ")
PATH = st.builds(
    lambda folders, name: "/".join([*folders, f"{name}.txt"]), st.lists(FOLDER, max_size=4), FOLDER
).filter(lambda path: len(path.encode()) <= 250)
FILES = st.dictionaries(PATH, st.tuples(st.binary(max_size=2000), st.booleans()), max_size=8)


def packed(files: dict[str, tuple[bytes, bool]], tar_format: int, *, dotted: bool) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", format=tar_format) as writer:
        if dotted:
            root = tarfile.TarInfo("./")
            root.type = tarfile.DIRTYPE
            writer.addfile(root)
        for path, (data, executable) in [("SKILL.md", (SKILL_MD, False)), *files.items()]:
            entry = tarfile.TarInfo(f"./{path}" if dotted else path)
            entry.size, entry.mode, entry.mtime = len(data), 0o755 if executable else 0o644, 1.5
            writer.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def listed(archive: bytes) -> list[SkillFile]:
    return read_bundle(io.BytesIO(archive), LIMITS).manifest.files


def fits_ustar(path: str) -> bool:
    try:
        tarfile.TarInfo(f"./{path}").tobuf(tarfile.USTAR_FORMAT)
    except ValueError:
        return False
    return True


@settings(max_examples=cases(60))
@given(FILES)
def test_every_writer_gives_the_same_files(files: dict[str, tuple[bytes, bool]]) -> None:
    files = {path: content for path, content in files.items() if fits_ustar(path)}
    expected = listed(packed(files, tarfile.PAX_FORMAT, dotted=False))
    assert [(file.path, file.bytes, file.executable) for file in expected] == sorted(
        [("SKILL.md", len(SKILL_MD), False)]
        + [(path, len(data), executable) for path, (data, executable) in files.items()]
    )
    for tar_format in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        assert listed(packed(files, tar_format, dotted=True)) == expected
    # The order of the entries is the writer's own.
    assert listed(packed(dict(reversed(files.items())), tarfile.GNU_FORMAT, dotted=False)) == expected


def outcome(archive: bytes) -> Bundle | BundleError:
    """Anything else than these two fails the test that asks."""
    result: Bundle | BundleError
    start = time.process_time()
    try:
        result = read_bundle(io.BytesIO(archive), LIMITS)
    except BundleError as fault:
        result = fault
    assert time.process_time() - start < 0.5
    if isinstance(result, BundleError):
        assert len(result.message) < 1500
        assert result.message.isprintable()
        result.message.encode()
    return result


def damaged(data: bytes, chance: random.Random) -> bytes:
    broken = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(broken))
        match chance.randrange(5):
            case 0:
                broken[at] ^= 1 << chance.randrange(8)
            case 1:
                broken[at] = chance.choice(b"\x00\xff\x80 \n/.:-0179gxL")
            case 2:
                del broken[at : at + chance.randint(1, 40)]
            case 3:
                broken[at:at] = chance.randbytes(chance.randint(1, 40))
            case _:
                other = chance.randrange(len(broken))
                broken[at : at + 12] = broken[other : other + 12]
        if not broken:
            return b""
    return bytes(broken)


def with_right_sums(archive: bytes) -> bytes:
    """Past the checksum, so that damage reaches the fields behind it."""
    blocks = [archive[start : start + BLOCK].ljust(BLOCK, b"\0") for start in range(0, len(archive), BLOCK)]
    for number, block in enumerate(blocks):
        if block[257:262] == b"ustar":
            total = sum(block[:148]) + 8 * 32 + sum(block[156:])
            blocks[number] = block[:148] + b"%06o\0 " % total + block[156:]
    return b"".join(blocks)


WHOLE = tar(
    pax({b"comment": b"0" * 40}, kind=b"g"),
    skill_md(),
    directory(b"./docs/"),
    pax({b"path": b"docs/a long name", b"size": b"5", b"mtime": b"1.5"}),
    file(b"docs/a", b"12345"),
    long_name(b"docs/" + b"b" * 120),
    file(b"docs/b", b"x" * 600, mode=0o755),
)
YAML = frontmatter(
    b"version: 1.2.0", b"metadata: {a: [1, 2.5, ~], 'b': \"c\\n\"}", b"list:", b"  - x: |", b"      text", b"  - y"
)


@pytest.mark.parametrize("seed", range(cases(8)))
def test_damage_is_refused_or_harmless(seed: int) -> None:
    chance = random.Random(seed if REPEATED else None)
    for _ in range(100):
        outcome(damaged(gzip(WHOLE), chance))
        outcome(gzip(damaged(WHOLE, chance)))
        outcome(gzip(with_right_sums(damaged(WHOLE, chance))))
        outcome(gzip(tar(skill_md(damaged(YAML, chance)))))


def test_damage_within_gzip_never_changes_what_is_read() -> None:
    whole = gzip(WHOLE)
    files = listed(whole)
    for at in range(10, len(whole)):
        for bit in range(8):
            result = outcome(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
            # Some bits mean nothing, and one run of zeros is as good to copy from as another.
            assert isinstance(result, BundleError) or result.manifest.files == files

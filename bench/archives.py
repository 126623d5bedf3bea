"""Bundles to push, the same ones every time."""

import gzip
import io
import random
import tarfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

_SKILL_MD = b"---\nname: bench\ndescription: What a bundle of this size is like.\n---\n"
_MIB = 1024 * 1024
# gzip's own default, and tar's with it.
_LEVEL = 6


@cache
def small() -> bytes:
    """About 3 KiB, as most bundles are: instructions and a few references."""
    prose = _prose(random.Random(1), 8_000)  # noqa: S311
    parts = {f"references/{number}.md": prose[number * 1500 : (number + 1) * 1500] for number in range(3)}
    return packed({"SKILL.md": _SKILL_MD + prose[4500:6500]} | parts)


@cache
def text(files: int = 500, file_bytes: int = _MIB // 10) -> bytes:
    """50 MiB of prose, which gzip makes a third of."""
    prose = _prose(random.Random(2), files * file_bytes)  # noqa: S311
    parts = {f"pages/{number}.md": prose[number * file_bytes : (number + 1) * file_bytes] for number in range(files)}
    return packed({"SKILL.md": _SKILL_MD} | parts)


@cache
def largest(files: int = 31) -> bytes:
    """Nearly the 32 MiB that a push may have, of what cannot be packed: pictures and the like."""
    noise = random.Random(3)  # noqa: S311
    parts = {f"assets/{number}.bin": noise.randbytes(_MIB) for number in range(files)}
    return packed({"SKILL.md": _SKILL_MD} | parts | {"assets/last.bin": noise.randbytes(_MIB - 64 * 1024)})


def packed(files: Mapping[str, bytes]) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for path, content in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return gzip.compress(raw.getvalue(), _LEVEL, mtime=0)


def written(archive: bytes, path: Path) -> Path:
    path.write_bytes(archive)
    return path


def restamped(archive: bytes, number: int) -> bytes:
    """Another archive with the same content: the time in a gzip header is read by nobody."""
    return archive[:4] + number.to_bytes(4, "little") + archive[8:]


def _prose(choice: random.Random, size: int) -> bytes:
    """Of a few thousand words, the first of which are as frequent as "the" and "of". Paragraphs come again, but further
    apart than gzip looks back."""
    letters = "etaoinshrdlcumwfgypbvk"
    words = ["".join(choice.choices(letters, k=choice.randint(2, 10))) for _ in range(4_000)]
    weights = [(rank + 2) ** -1.2 for rank in range(len(words))]
    paragraphs = [
        (" ".join(choice.choices(words, weights, k=choice.randint(40, 90))) + ".\n\n").capitalize().encode()
        for _ in range(min(4_000, size // 200 + 1))
    ]
    prose = bytearray()
    while len(prose) < size:
        choice.shuffle(paragraphs)
        prose += b"".join(paragraphs)
    return bytes(prose[:size])

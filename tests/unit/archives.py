"""Builds archives byte by byte, right and wrong, so that a test says exactly what is unusual about its own.

Nothing here uses the reader under test, nor `tarfile`, which would not write most of these.
"""

import struct
import zlib
from collections.abc import Iterable, Mapping

BLOCK = 512
SKILL_MD = b"---\nname: pdf-tools\ndescription: Fill in PDF forms.\n---\nRead the form first.\n"

USTAR, GNU, V7 = b"ustar\x0000", b"ustar  \0", bytes(8)
PLAIN_GZIP = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % BLOCK)


def header(
    name: bytes,
    *,
    size: int | bytes = 0,
    kind: bytes = b"0",
    mode: int | bytes = 0o644,
    magic: bytes = USTAR,
    prefix: bytes = b"",
    link: bytes = b"",
    checksum: bytes | None = None,
    signed: bool = False,
) -> bytes:
    """A number is written in octal; bytes are written as they are, so that a field can hold anything."""
    fields = struct.pack(
        "100s8s8s8s12s12s8s1s100s8s32s32s8s8s155s12x",
        name,
        mode if isinstance(mode, bytes) else b"%07o\0" % mode,
        b"0000000\0",
        b"0000000\0",
        size if isinstance(size, bytes) else b"%011o\0" % size,
        b"00000000000\0",
        b" " * 8,
        kind,
        link,
        magic,
        b"",
        b"",
        b"",
        b"",
        prefix,
    )
    total = sum(fields) - (256 * sum(byte > 127 for byte in fields) if signed else 0)
    return fields[:148] + (b"%06o\0 " % total if checksum is None else checksum) + fields[156:]


def base256(value: int) -> bytes:
    return b"\x80" + value.to_bytes(11, "big") if value >= 0 else value.to_bytes(12, "big", signed=True)


def file(
    name: bytes,
    data: bytes = b"",
    *,
    mode: int | bytes = 0o644,
    magic: bytes = USTAR,
    kind: bytes = b"0",
    prefix: bytes = b"",
    signed: bool = False,
) -> bytes:
    made = header(name, size=len(data), mode=mode, magic=magic, kind=kind, prefix=prefix, signed=signed)
    return made + padded(data)


def directory(name: bytes, *, magic: bytes = USTAR) -> bytes:
    return header(name, kind=b"5", mode=0o755, magic=magic)


def skill_md(data: bytes = SKILL_MD) -> bytes:
    return file(b"SKILL.md", data)


def pax_record(key: bytes, value: bytes) -> bytes:
    rest = b" " + key + b"=" + value + b"\n"
    length = len(rest)
    while len(b"%d" % length) + len(rest) != length:
        length = len(b"%d" % length) + len(rest)
    return b"%d" % length + rest


def pax(records: Mapping[bytes, bytes] | bytes, *, kind: bytes = b"x") -> bytes:
    body = records if isinstance(records, bytes) else b"".join(pax_record(*item) for item in records.items())
    return header(b"PaxHeaders/entry", size=len(body), kind=kind) + padded(body)


def long_name(name: bytes, *, kind: bytes = b"L") -> bytes:
    body = name + b"\0"
    return header(b"././@LongLink", size=len(body), kind=kind, magic=GNU) + padded(body)


def tar(*entries: bytes, end_blocks: int = 2) -> bytes:
    return b"".join(entries) + bytes(BLOCK * end_blocks)


def deflated(pieces: Iterable[bytes], level: int = 6) -> bytes:
    squeeze = zlib.compressobj(level, zlib.DEFLATED, -15)
    return b"".join(map(squeeze.compress, pieces)) + squeeze.flush()


def gzip(data: bytes, *, start: bytes = PLAIN_GZIP, crc: int | None = None, length: int | None = None) -> bytes:
    """One member. `crc` and `length` replace what belongs there."""
    crc = zlib.crc32(data) if crc is None else crc
    length = len(data) if length is None else length
    return start + deflated([data]) + struct.pack("<II", crc, length & 0xFFFFFFFF)


def gzip_pieces(pieces: Iterable[bytes]) -> bytes:
    """For content too large to hold at once."""
    squeeze = zlib.compressobj(1, zlib.DEFLATED, 31)
    return b"".join(map(squeeze.compress, pieces)) + squeeze.flush()


def gzip_start(*, extra: bytes = b"", name: bytes = b"", comment: bytes = b"", header_crc: bool = False) -> bytes:
    flags = 4 * bool(extra) | 8 * bool(name) | 16 * bool(comment) | 2 * header_crc
    start = b"\x1f\x8b\x08" + bytes([flags]) + b"\0\0\0\0\0\xff"
    start += struct.pack("<H", len(extra)) + extra if extra else b""
    start += name + b"\0" if name else b""
    start += comment + b"\0" if comment else b""
    return start + (struct.pack("<H", zlib.crc32(start) & 0xFFFF) if header_crc else b"")


def bundle(*entries: bytes) -> bytes:
    """A right archive around the entries, with a right SKILL.md in front."""
    return gzip(tar(skill_md(), *entries))


def bundle_with(data: bytes) -> bytes:
    """A right archive with this as its SKILL.md."""
    return gzip(tar(skill_md(data)))


def frontmatter(*lines: bytes) -> bytes:
    """A SKILL.md that has a name, a description and these lines of frontmatter."""
    return b"\n".join((b"---", b"name: pdf-tools", b"description: Fill in PDF forms.", *lines, b"---", b""))


def empty_deflate_blocks(total_bytes: int) -> bytes:
    """A gzip member of dynamic blocks that hold nothing: only the tables have to be built, again and again."""
    bits, count = 0, 0

    def put(value: int, width: int) -> None:
        nonlocal bits, count
        bits |= value << count
        count += width

    # Not final, dynamic; 257 literal codes, 1 distance code, 18 code length codes.
    for value, width in ((0, 1), (2, 2), (0, 5), (0, 5), (14, 4)):
        put(value, width)
    # Lengths of the code length codes in deflate's order: 18 takes one bit, 1 the other.
    for symbol in (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1):
        put(1 if symbol in (18, 1) else 0, 3)
    # 1 comes first (bit 0), 18 second (bit 1): 138 + 118 zeros, then length 1 for the end mark and a distance.
    for value, width in ((1, 1), (127, 7), (1, 1), (107, 7), (0, 1), (0, 1)):
        put(value, width)
    put(0, 1)
    unit = 0
    for copy in range(8):
        unit |= bits << (copy * count)
    blocks = unit.to_bytes(count, "little") * (total_bytes // count)
    # A last, empty stored block and the sums of nothing.
    return PLAIN_GZIP + blocks + b"\x01\0\0\xff\xff" + bytes(8)

"""Parses tar headers: a 512-byte block or the body of a PAX header.

A header that common readers interpret differently is rejected, so that the manifest lists what they unpack.
"""

import re
import struct
from collections.abc import Iterator

from msgspec import Struct

from quarterdeck.skills.model import BundleError, shown

BLOCK_BYTES = 512
ZERO_BLOCK = bytes(BLOCK_BYTES)

FILE, OLD_FILE, DIRECTORY = b"0", b"\0", b"5"
LONG_NAME, EXTENDED, GLOBAL = b"L", b"x", b"g"

_REFUSED_TYPES = {
    b"1": "hard links are not supported. Pack with tar --hard-dereference to store the file itself.",
    b"2": "symbolic links are not supported. Pack with tar -h to store the files that they point to.",
    b"3": "character devices are not supported.",
    b"4": "block devices are not supported.",
    b"6": "named pipes are not supported.",
    b"7": "contiguous files are not supported.",
    b"K": "links are not supported. Pack with tar -h (tar --hard-dereference for hard links) to store the file itself.",
    b"S": "sparse files are not supported. Pack without tar --sparse.",
    b"M": "multi-volume archives are not supported.",
    b"D": "incremental dumps are not supported. Pack without tar --listed-incremental.",
    b"V": "volume labels are not supported. Pack without tar --label.",
}

# name, mode, (uid, gid), size, (mtime), checksum, type, (linkname), magic, (…), prefix
_HEADER = struct.Struct("100s8s16x12s12x8s1s100x6s82x155s12x")
_CHECKSUM = slice(148, 156)
# No sign, underscore or radix prefix, which int() would accept.
_OCTAL = re.compile(rb" *([0-7]*)[ \0]*")
_RECORD_LENGTH = re.compile(rb"([0-9]{1,7}) ")
_BASE_256, _BASE_256_NEGATIVE = 0x80, 0xFF


class Header(Struct, frozen=True):
    name: bytes
    type: bytes
    size: int
    executable: bool


class Extension(Struct, frozen=True):
    """What an extended header sets for the next entry."""

    name: bytes | None = None
    size: int | None = None


def read_header(block: bytes) -> Header:
    name, mode, size, checksum, kind, magic, prefix = _HEADER.unpack(block)
    name, prefix = name.partition(b"\0")[0], prefix.partition(b"\0")[0]
    if not _is_checksum(block, _number(checksum)):
        raise BundleError("the tar archive is corrupt (header checksum mismatch).", path=name)
    if magic == b"ustar\0":
        name = prefix + b"/" + name if prefix else name
    elif prefix:
        # GNU tar ignores these bytes; Python and others prepend them to the name.
        raise BundleError("the header has a name prefix in a format without one.", path=name)
    if kind in _REFUSED_TYPES:
        raise BundleError(_REFUSED_TYPES[kind], path=name)
    if kind not in (FILE, OLD_FILE, DIRECTORY, LONG_NAME, EXTENDED, GLOBAL):
        raise BundleError(f'unknown entry type "{shown(kind)}".', path=name)
    length, bits = _number(size), _number(mode)
    if length is None or bits is None:
        raise BundleError(f"the header's {'mode' if bits is None else 'size'} is not a number.", path=name)
    if length < 0:
        raise BundleError("the header's size is negative.", path=name)
    return Header(name, kind, length, bits & 0o111 != 0)


def _is_checksum(block: bytes, checksum: int | None) -> bool:
    rest = block[: _CHECKSUM.start] + b" " * 8 + block[_CHECKSUM.stop :]
    # Old Sun tars sum signed bytes; all readers accept both.
    return checksum == sum(rest) or checksum == sum(rest) - 256 * sum(byte > 127 for byte in rest)


def _number(field: bytes) -> int | None:
    if field[0] == _BASE_256:
        return int.from_bytes(field[1:], "big")
    if field[0] == _BASE_256_NEGATIVE:
        return int.from_bytes(field, "big", signed=True)
    match = _OCTAL.fullmatch(field)
    return int(match[1] or b"0", 8) if match else None


def read_long_name(body: bytes) -> Extension:
    # An inner NUL is kept, and rejected later with the other control characters.
    return Extension(name=body.rstrip(b"\0"))


def read_extension(body: bytes, header: Header) -> Extension:
    name, size = None, None
    for key, value in _records(body, header):
        if key == b"path":
            if name is not None:
                raise BundleError("the PAX header sets the path twice.", path=header.name)
            name = value
        elif key == b"size":
            # Seventeen digits are enough for any size that is accepted, and bound the time of int().
            if size is not None or not value.isdigit() or len(value) > 17:
                raise BundleError("the PAX header's size is not a number.", path=header.name)
            size = int(value)
    return Extension(name, size)


def check_global(body: bytes, header: Header) -> None:
    """Accept comments (`git archive` stores its commit in one), reject keys that change entries."""
    for key, _ in _records(body, header):
        if key in (b"path", b"size"):
            raise BundleError(f'the global PAX header sets "{shown(key)}" for every entry.', path=header.name)


def _records(body: bytes, header: Header) -> Iterator[tuple[bytes, bytes]]:
    at = 0
    while at < len(body):
        length = _RECORD_LENGTH.match(body, at)
        end = at + int(length[1]) if length else at
        # A record must end with a line feed, so `end` is greater than `at` and the loop terminates.
        record = body[length.end() : end] if length else b""
        key, equals, value = record[:-1].partition(b"=")
        if end > len(body) or not record.endswith(b"\n") or not (key and equals):
            raise BundleError("the PAX header is malformed.", path=header.name)
        _check_record(key, value, header)
        yield key, value
        at = end


def _check_record(key: bytes, value: bytes, header: Header) -> None:
    """Reject keys that change what is stored. Times, owners, attributes and other vendor keys do not."""
    if key == b"linkpath":
        advice = "Pack with tar -h (tar --hard-dereference for hard links)"
        raise BundleError(f"links are not supported (PAX linkpath). {advice}.", path=header.name)
    if key.startswith(b"GNU.sparse.") or key in (b"SCHILY.realsize", b"SUN.holesdata"):
        raise BundleError("sparse files are not supported (PAX header). Pack without tar --sparse.", path=header.name)
    if key in (b"GNU.volume.filename", b"GNU.volume.offset", b"GNU.volume.size"):
        raise BundleError("multi-volume archives are not supported (PAX header).", path=header.name)
    if key == b"charset" or (key == b"hdrcharset" and value != b"ISO-IR 10646 2000 UTF-8"):
        raise BundleError(
            f'other character sets are not supported (PAX {shown(key)} "{shown(value)}").', path=header.name
        )

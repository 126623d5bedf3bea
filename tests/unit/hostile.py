"""Archives that must be refused, each with a word of the reason. Built when asked for: some are large."""

import random
import zlib
from collections.abc import Callable

from quarterdeck.core.settings import BundleSettings
from tests.unit.archives import (
    BLOCK,
    GNU,
    SKILL_MD,
    V7,
    base256,
    bundle,
    bundle_with,
    directory,
    empty_deflate_blocks,
    file,
    frontmatter,
    gzip,
    gzip_pieces,
    header,
    long_name,
    pax,
    pax_record,
    skill_md,
    tar,
)

Cases = dict[str, tuple[Callable[[], bytes], str]]

LIMITS = BundleSettings()
MIB = 1024 * 1024

GOOD = gzip(tar(skill_md()))
BIDI = "a\u202etxt.exe".encode()

GZIP: Cases = {
    "empty body": (lambda: b"", r"^Not a gzip archive \(empty\)\. Pack"),
    "zip": (lambda: b"PK\x03\x04" + bytes(100), "found zip"),
    "xz": (lambda: b"\xfd7zXZ\x00" + bytes(100), "found xz"),
    "bzip2": (lambda: b"BZh91AY" + bytes(100), "found bzip2"),
    "zstd": (lambda: b"\x28\xb5\x2f\xfd" + bytes(100), "found zstd"),
    "plain tar": (lambda: tar(skill_md()), "found plain tar"),
    "zlib stream": (lambda: zlib.compress(tar(skill_md())), r"^Not a gzip archive\. Pack"),
    "first magic byte alone": (lambda: b"\x1f", "gzip data is truncated"),
    "other magic": (lambda: b"\x1f\x9d" + GOOD[2:], r"^Not a gzip archive\. Pack"),
    "gzip magic alone": (lambda: b"\x1f\x8b", "gzip data is truncated"),
    "unknown compression method": (lambda: GOOD[:2] + b"\x09" + GOOD[3:], "gzip data is corrupt"),
    "reserved flag": (lambda: GOOD[:3] + b"\xe0" + GOOD[4:], "gzip data is corrupt"),
    "file name without end": (lambda: GOOD[:3] + b"\x08" + GOOD[4:10] + b"n" * MIB, "gzip data is truncated"),
    "truncated in the data": (lambda: GOOD[: len(GOOD) // 2], "gzip data is truncated"),
    "truncated before the sum": (lambda: GOOD[:-8], "gzip data is truncated"),
    "truncated by one byte": (lambda: GOOD[:-1], "gzip data is truncated"),
    "wrong CRC": (lambda: gzip(tar(skill_md()), crc=1), "CRC mismatch"),
    "wrong length": (lambda: gzip(tar(skill_md()), length=1), "length mismatch"),
    "wrong header CRC": (lambda: GOOD[:3] + b"\x02" + GOOD[4:10] + b"\0\0" + GOOD[10:], "gzip data is corrupt"),
    "damaged deflate": (lambda: GOOD[:10] + b"\xff" * 20 + GOOD[30:], "gzip data is corrupt"),
    "trailing garbage": (lambda: GOOD + b"garbage", "data after the end of the gzip"),
    "trailing garbage like gzip": (lambda: GOOD + b"\x1f\x8bgarbage", "gzip data is corrupt"),
    "trailing garbage like half of gzip": (lambda: GOOD + b"\x1fgarbage", "data after the end of the gzip"),
    "garbage behind zero padding": (lambda: GOOD + bytes(70_000) + b"x", "data after the end of the gzip"),
    "member behind zero padding": (lambda: GOOD + bytes(512) + GOOD, "data after the end of the gzip"),
    "second member truncated": (lambda: gzip(tar(skill_md(), end_blocks=0)) + GOOD[:20], "gzip data is truncated"),
    "second member with wrong CRC": (lambda: GOOD + gzip(bytes(512), crc=1), "CRC mismatch"),
    "a second archive": (lambda: GOOD + GOOD, "data after the end"),
    "a million empty members": (lambda: gzip(b"") * 1_000_000, "more than 4096 gzip members"),
    "larger than a request": (lambda: GOOD + bytes(LIMITS.request_bytes), "larger than 33554432 bytes"),
    # A machine four times as fast gets to the end within the allowance and finds nothing there.
    "empty deflate blocks": (lambda: empty_deflate_blocks(31 * MIB), "processor time|SKILL.md at the root of"),
}

TAR: Cases = {
    "no tar in it": (lambda: gzip(b"hello"), "ends inside a header"),
    "text of one block": (lambda: gzip(b"x" * 512), "checksum mismatch"),
    "bad checksum": (lambda: bundle(header(b"a", checksum=b"000000\0 ")), "checksum mismatch"),
    "checksum not a number": (lambda: bundle(header(b"a", checksum=b"        ")), "checksum mismatch"),
    "checksum with a sign": (lambda: bundle(header(b"a", checksum=b"+10000\0 ")), "checksum mismatch"),
    "truncated header": (lambda: gzip(tar(skill_md(), end_blocks=0) + header(b"a")[:100]), "inside a header"),
    "truncated data": (lambda: gzip(skill_md() + header(b"a", size=2000) + b"x" * 600), "inside this entry"),
    "truncated padding": (lambda: gzip(skill_md() + header(b"a", size=5) + b"12345"), "inside this entry"),
    "truncated extended header": (lambda: gzip(skill_md() + pax({b"path": b"a"})[:600]), "inside this entry"),
    "extended header and no entry": (lambda: gzip(tar(skill_md(), pax({b"path": b"a"}))), "describes no entry"),
    "long name and no entry": (lambda: gzip(tar(skill_md(), long_name(b"a"), end_blocks=0)), "describes no entry"),
    "data after one zero block": (lambda: gzip(skill_md() + bytes(BLOCK) + file(b"a")), "data after the end"),
    "data after the end": (lambda: gzip(tar(skill_md()) + file(b"a")), "data after the end"),
    "one byte after the end": (lambda: gzip(tar(skill_md()) + bytes(99_999) + b"x"), "data after the end"),
    "negative size in base 256": (lambda: bundle(header(b"a", size=base256(-512))), "size is negative"),
    "size of minus one": (lambda: bundle(header(b"a", size=b"\xff" * 12)), "size is negative"),
    # CVE-2025-8194: tarfile steps back over the header and reads it again, for ever.
    "negative size of an extended header": (lambda: gzip(header(b"a", size=base256(-512), kind=b"x")), "negative"),
    "huge size in base 256": (lambda: bundle(header(b"a", size=base256(2**80))), "unpacks to more"),
    "size at the edge of 64 bits": (lambda: bundle(header(b"a", size=base256(2**63))), "unpacks to more"),
    "unknown number format": (lambda: bundle(header(b"a", size=b"\xc0" + bytes(11))), "size is not a number"),
    "largest octal size": (lambda: bundle(header(b"a", size=b"777777777777")), "unpacks to more"),
    "size with a minus": (lambda: bundle(header(b"a", size=b"-0000000001\0")), "size is not a number"),
    "size with a plus": (lambda: bundle(header(b"a", size=b"+0000000001\0")), "size is not a number"),
    "size with an underscore": (lambda: bundle(header(b"a", size=b"0000000_001\0")), "size is not a number"),
    "size with a radix": (lambda: bundle(header(b"a", size=b"0o000000001\0")), "size is not a number"),
    "size in hexadecimal": (lambda: bundle(header(b"a", size=b"0000000000f\0")), "size is not a number"),
    "size with digits behind a NUL": (lambda: bundle(header(b"a", size=b"0000\x000000001")), "size is not a number"),
    "size with digits behind a space": (lambda: bundle(header(b"a", size=b"1 1        \0")), "size is not a number"),
    "size in other digits": (lambda: bundle(header(b"a", size="١".encode() + b"\0")), "size is not a number"),
    "mode not a number": (lambda: bundle(header(b"a", mode=b"rwxr-xr\0")), "mode is not a number"),
    "GNU header with a prefix": (lambda: bundle(file(b"a", magic=GNU, prefix=b"evil")), "name prefix"),
    "V7 header with a prefix": (lambda: bundle(file(b"a", magic=V7, prefix=b"evil")), "name prefix"),
    "one over the limit of entries": (
        lambda: bundle(*(file(b"%d" % number) for number in range(LIMITS.entries))),
        "more than 10000 entries",
    ),
    "more global headers than entries": (
        lambda: bundle(*[pax({b"comment": b"x"}, kind=b"g")] * LIMITS.entries),
        "more than 10000 entries",
    ),
}

EXTENDED: Cases = {
    "two PAX headers": (lambda: bundle(pax({b"path": b"a"}), pax({b"path": b"b"}), file(b"c")), "follows another"),
    "a chain of PAX headers": (lambda: bundle(*[pax({b"path": b"a"})] * 5000), "follows another"),
    "two long names": (lambda: bundle(long_name(b"a"), long_name(b"b"), file(b"c")), "follows another"),
    "long name, then PAX": (lambda: bundle(long_name(b"a"), pax({b"path": b"b"}), file(b"c")), "follows another"),
    "global header between": (lambda: bundle(pax({}), pax({}, kind=b"g"), file(b"c")), "follows another"),
    "PAX size differs": (lambda: bundle(pax({b"size": b"9"}), file(b"a", b"x")), "sizes in the PAX header"),
    "PAX size of nothing": (lambda: bundle(pax({b"size": b"0"}), file(b"a", b"x")), "sizes in the PAX header"),
    "PAX size negative": (lambda: bundle(pax({b"size": b"-1"}), file(b"a", b"x")), "size is not a number"),
    "PAX size with underscore": (lambda: bundle(pax({b"size": b"1_0"}), file(b"a", b"x")), "size is not a number"),
    "PAX size of 4,500 digits": (lambda: bundle(pax({b"size": b"9" * 4500}), file(b"a")), "size is not a number"),
    "PAX size of 60,000 digits": (lambda: bundle(pax({b"size": b"9" * 60_000}), file(b"a")), "size is not a number"),
    "PAX size twice": (lambda: bundle(pax(pax_record(b"size", b"0") * 2), file(b"a")), "size is not a number"),
    "PAX path twice": (lambda: bundle(pax(pax_record(b"path", b"b") * 2), file(b"a")), "sets the path twice"),
    "PAX path empty": (lambda: bundle(pax({b"path": b""}), file(b"a")), "path is empty"),
    "PAX path with NUL": (lambda: bundle(pax({b"path": b"a\0b"}), file(b"a")), r"U\+0000"),
    "PAX path not UTF-8": (lambda: bundle(pax({b"path": b"\xff"}), file(b"a")), "not UTF-8"),
    "PAX path that leaves": (lambda: bundle(pax({b"path": b"../a"}), file(b"a")), r'"\.\." component'),
    "PAX path over SKILL.md": (lambda: gzip(tar(pax({b"path": b"x"}), skill_md())), "SKILL.md at the root of"),
    "PAX link path": (lambda: bundle(pax({b"linkpath": b"/etc/passwd"}), file(b"a")), "linkpath.*tar -h"),
    "PAX sparse 0.0": (lambda: bundle(pax({b"GNU.sparse.numblocks": b"1"}), file(b"a")), "sparse"),
    "PAX sparse 0.1": (lambda: bundle(pax({b"GNU.sparse.map": b"0,1"}), file(b"a")), "sparse"),
    "PAX sparse 1.0": (lambda: bundle(pax({b"GNU.sparse.major": b"1"}), file(b"a")), "sparse"),
    "PAX sparse name": (lambda: bundle(pax({b"GNU.sparse.name": b"SKILL.md"}), file(b"a")), "sparse"),
    "PAX sparse of star": (lambda: bundle(pax({b"SCHILY.realsize": b"9"}), file(b"a")), "sparse"),
    "PAX binary names": (lambda: bundle(pax({b"hdrcharset": b"BINARY"}), file(b"a")), "hdrcharset.*BINARY"),
    "PAX charset": (lambda: bundle(pax({b"charset": b"ISO-IR 8859 1 1998"}), file(b"a")), "charset"),
    "PAX of another volume": (lambda: bundle(pax({b"GNU.volume.offset": b"9"}), file(b"a")), "multi-volume"),
    "PAX without length": (lambda: bundle(pax(b"path=a\n"), file(b"a")), "malformed"),
    "PAX length zero": (lambda: bundle(pax(b"0 path=a\n"), file(b"a")), "malformed"),
    "PAX length too short": (lambda: bundle(pax(b"3 path=a\n"), file(b"a")), "malformed"),
    "PAX length too long": (lambda: bundle(pax(b"99 path=a\n"), file(b"a")), "malformed"),
    "PAX length negative": (lambda: bundle(pax(b"-9 path=a\n"), file(b"a")), "malformed"),
    "PAX length with plus": (lambda: bundle(pax(b"+9 path=a\n"), file(b"a")), "malformed"),
    "PAX length of 60,000 digits": (lambda: bundle(pax(b"9" * 60_000 + b" a=b\n"), file(b"a")), "malformed"),
    "PAX without equals sign": (lambda: bundle(pax(b"9 path a\n"), file(b"a")), "malformed"),
    "PAX without key": (lambda: bundle(pax(b"5 =a\n"), file(b"a")), "malformed"),
    "PAX without line end": (lambda: bundle(pax(b"9 path=ab"), file(b"a")), "malformed"),
    "PAX with zeros inside": (lambda: bundle(pax(b"9 path=a\n" + bytes(9)), file(b"a")), "malformed"),
    "PAX header too large": (lambda: bundle(pax({b"x": b"x" * 65_536}), file(b"a")), "larger than 65536 bytes"),
    "PAX header of gigabytes": (lambda: bundle(header(b"x", size=2**32, kind=b"x")), "larger than 65536 bytes"),
    "long name too large": (lambda: bundle(long_name(b"a" * 65_536), file(b"a")), "larger than 65536 bytes"),
    "long name of nothing": (lambda: bundle(long_name(b""), file(b"a")), "path is empty"),
    "long name with NUL": (lambda: bundle(long_name(b"a\0b"), file(b"a")), r"U\+0000"),
    "global path": (lambda: bundle(pax({b"path": b"a"}, kind=b"g"), file(b"a")), 'sets "path" for every'),
    "global size": (lambda: bundle(pax({b"size": b"1"}, kind=b"g"), file(b"a")), 'sets "size" for every'),
    "global link path": (lambda: bundle(pax({b"linkpath": b"a"}, kind=b"g"), file(b"a")), "linkpath"),
    "global sparse": (lambda: bundle(pax({b"GNU.sparse.size": b"1"}, kind=b"g"), file(b"a")), "sparse"),
    "global charset": (lambda: bundle(pax({b"hdrcharset": b"BINARY"}, kind=b"g"), file(b"a")), "charset"),
    "malformed global header": (lambda: bundle(pax(b"99 comment=x\n", kind=b"g")), "malformed"),
}

# What Python's tarfile would take for a directory, and the file's content for further entries.
INNER = header(b"../../evil.txt", kind=b"2", link=b"/etc/passwd")

TYPES: Cases = {
    "a directory by its header, a file by its PAX path": (
        lambda: bundle(pax({b"path": b"data.bin"}), file(b"d/", INNER, kind=b"\0")),
        "disagree whether this is a directory",
    ),
    "a directory by its header, a file by its long name": (
        lambda: bundle(long_name(b"data.bin"), file(b"d/", INNER, kind=b"\0", magic=GNU)),
        "disagree whether this is a directory",
    ),
    "a file by its header, a directory by its PAX path": (
        lambda: bundle(pax({b"path": b"d/"}), file(b"d", kind=b"\0")),
        "disagree whether this is a directory",
    ),
    "hard link": (lambda: bundle(header(b"a", kind=b"1", link=b"SKILL.md")), "hard link.*--hard-dereference"),
    "symbolic link": (lambda: bundle(header(b"a", kind=b"2", link=b"/etc/passwd")), "symbolic link.*tar -h"),
    "link with a long target": (lambda: bundle(long_name(b"x" * 200, kind=b"K")), "link.*tar -h"),
    "character device": (lambda: bundle(header(b"a", kind=b"3")), "character device"),
    "block device": (lambda: bundle(header(b"a", kind=b"4")), "block device"),
    "named pipe": (lambda: bundle(header(b"a", kind=b"6")), "named pipe"),
    "contiguous file": (lambda: bundle(header(b"a", kind=b"7")), "contiguous"),
    "GNU sparse file": (lambda: bundle(header(b"a", kind=b"S", magic=GNU)), "sparse"),
    "GNU dump directory": (lambda: bundle(header(b"a", kind=b"D", magic=GNU)), "incremental"),
    "GNU continued file": (lambda: bundle(header(b"a", kind=b"M", magic=GNU)), "multi-volume"),
    "GNU volume label": (lambda: bundle(header(b"a", kind=b"V", magic=GNU)), "volume label"),
    "Solaris extended header": (lambda: bundle(header(b"a", kind=b"X")), 'unknown entry type "X"'),
    "unknown type": (lambda: bundle(header(b"a", kind=b"\xfe")), "unknown entry type"),
    "directory with data": (lambda: bundle(file(b"d/", b"x", kind=b"5")), "directory cannot have content"),
    "V7 directory with data": (
        lambda: bundle(file(b"d/", b"x", kind=b"\0", magic=V7)),
        "directory cannot have content",
    ),
    "root directory with data": (lambda: bundle(file(b"./", b"x", kind=b"5")), "directory cannot have content"),
    "file called like a directory": (lambda: bundle(file(b"d/")), "empty component"),
    "file called like the root": (lambda: bundle(file(b"./")), "path is empty"),
}

PATHS: Cases = {
    "no name": (lambda: bundle(file(b"")), "path is empty"),
    "directory without name": (lambda: bundle(directory(b"")), "path is empty"),
    "absolute": (lambda: bundle(file(b"/etc/passwd")), "absolute"),
    "absolute by prefix": (lambda: bundle(file(b"passwd", prefix=b"/etc")), "absolute"),
    "absolute behind ./": (lambda: bundle(file(b".//etc/passwd")), "absolute"),
    "directory of everything": (lambda: bundle(directory(b"/")), "absolute"),
    "parent in front": (lambda: bundle(file(b"../a")), r'"\.\." component'),
    "parent behind ./": (lambda: bundle(file(b"./../a")), r'"\.\." component'),
    "parent in the middle": (lambda: bundle(file(b"a/../b")), r'"\.\." component'),
    "parent at the end": (lambda: bundle(directory(b"a/..")), r'"\.\." component'),
    "parent by prefix": (lambda: bundle(file(b"a", prefix=b"..")), r'"\.\." component'),
    "empty component": (lambda: bundle(file(b"a//b")), "empty component"),
    "directory with two slashes": (lambda: bundle(directory(b"a//")), "empty component"),
    "dot in the middle": (lambda: bundle(file(b"a/./b")), r'"\." component'),
    "dot at the end": (lambda: bundle(file(b"a/.")), r'"\." component'),
    "file called dot": (lambda: bundle(file(b".")), r'"\." component'),
    "backslash": (lambda: bundle(file(b"a\\..\\b")), "backslash"),
    "drive letter": (lambda: bundle(file(b"C:/a")), "drive letter"),
    "drive letter behind ./": (lambda: bundle(file(b"./c:a")), "drive letter"),
    "line break": (lambda: bundle(file(b"a\nb")), r"U\+000A"),
    "escape": (lambda: bundle(file(b"a\x1b[2Jb")), r"U\+001B"),
    "delete": (lambda: bundle(file(b"a\x7f")), r"U\+007F"),
    "C1 control": (lambda: bundle(file("a\u0085".encode())), r"U\+0085"),
    "right-to-left override": (lambda: bundle(file(BIDI)), r"a\\u202etxt\.exe.*U\+202E"),
    "bidi isolate": (lambda: bundle(file("a\u2066".encode())), r"U\+2066"),
    "right-to-left mark": (lambda: bundle(file("a\u200f".encode())), r"U\+200F"),
    "Arabic letter mark": (lambda: bundle(file("a\u061c".encode())), r"U\+061C"),
    **{
        f"invisible {name}": (lambda path=path: bundle(file(path.encode())), rf"invisible character, U\+{code}")  # type: ignore[misc]
        for name, path, code in (
            ("zero-width space", "SKILL\u200b.md", "200B"),
            ("zero-width joiner", "SKILL\u200d.md", "200D"),
            ("zero-width non-joiner", "a\u200cb", "200C"),
            ("joiner before ASCII", "é\u200d.md", "200D"),
            ("joiner at the end", "é\u200d", "200D"),
            ("two joiners", "é\u200d\u200d.md", "200D"),
            ("word joiner", "a\u2060", "2060"),
            ("byte order mark", "\ufeffSKILL.md", "FEFF"),
            ("soft hyphen", "SKI\u00adLL.md", "00AD"),
            ("Hangul filler", "a/\u3164", "3164"),
            ("emoji selector after ASCII", "a\ufe0f", "FE0F"),
            ("emoji selector of a digit", "1\ufe0f", "FE0F"),
            ("variation selector", "漢\U000e0100", "E0100"),
            ("tag", "🏴\U000e0067\U000e007f", "E0067"),
            ("line separator", "a\u2028b", "2028"),
        )
    },
    **{
        f"Windows: {name}": (lambda path=path: bundle(file(path.encode())), reason)  # type: ignore[misc]
        for name, path, reason in (
            ("trailing dot", "a.", "ends with a dot or a space"),
            ("trailing dot of a folder", "a./b", "ends with a dot or a space"),
            ("trailing space", "a ", "ends with a dot or a space"),
            ("only dots", "...", "ends with a dot or a space"),
            ("only a space", "b/ ", "ends with a dot or a space"),
            ("stream", "SKILL.md::$DATA", "Windows does not allow: :"),
            ("wildcard", "a*", r"Windows does not allow: \*"),
            ("question mark", "a?", r"Windows does not allow: \?"),
            ("pipe", "a|b", r"Windows does not allow: \|"),
            ("angle bracket", "<a", "Windows does not allow: <"),
            ("quotation mark", '"a"', 'Windows does not allow: "'),
            ("device", "CON", '"CON" is the name of a device'),
            ("device with an extension", "docs/nul.txt", '"nul" is the name of a device'),
            ("device with two extensions", "Aux.tar.gz", '"Aux" is the name of a device'),
            ("device with a space", "prn .txt", '"prn" is the name of a device'),
            ("device as a folder", "com1/a", '"com1" is the name of a device'),
            ("device with a superscript", "lpt\u00b9", "is the name of a device"),
            ("console", "conin$", "is the name of a device"),
        )
    },
    "differ in a joiner": (
        lambda: bundle(file("می\u200cشود".encode()), file("میشود".encode())),
        "differ only in case, Unicode form or invisible",
    ),
    "differ in an emoji selector": (
        lambda: bundle(file("❤\ufe0f.md".encode()), file("❤.md".encode())),
        "differ only in case, Unicode form or invisible",
    ),
    "a dot more": (lambda: bundle(file(b"a"), file(b"a.")), "ends with a dot"),
    "Latin-1": (lambda: bundle(file("é".encode("latin-1"))), "not UTF-8"),
    "surrogate": (lambda: bundle(file(b"a\xed\xa0\x80")), "not UTF-8"),
    "overlong slash": (lambda: bundle(file(b"a\xc0\xafb")), "not UTF-8"),
    "too long": (lambda: bundle(long_name(b"/".join([b"a" * 200] * 6)), file(b"a")), "longer than 1024 bytes"),
    "60,000 times ./": (lambda: bundle(long_name(b"./" * 30_000), file(b"a")), "path is empty"),
    "60,000 slashes": (lambda: bundle(long_name(b"a" + b"/" * 60_000), file(b"a")), "longer than 1024 bytes"),
    "too deep": (lambda: bundle(file(b"a/" * 32 + b"b")), "deeper than 32 levels"),
    "component too long": (lambda: bundle(pax({b"path": b"a" * 256}), file(b"a")), "longer than 255 bytes"),
    "component too long in bytes": (
        lambda: bundle(pax({b"path": ("é" * 128).encode()}), file(b"a")),
        "longer than 255 bytes",
    ),
    "all paths too long": (
        lambda: bundle(*(pax({b"path": b"%04d/" % n + b"a/" * 10 + b"x" * 250}) + file(b"a") for n in range(4000))),
        "paths together are longer",
    ),
    "twice": (lambda: bundle(file(b"a"), file(b"a")), "duplicate path"),
    "twice, once with ./": (lambda: bundle(file(b"a"), file(b"./a")), "duplicate path"),
    "twice, by prefix": (lambda: bundle(file(b"a/b"), file(b"b", prefix=b"a")), "duplicate path"),
    "twice, by PAX": (lambda: bundle(file(b"a"), pax({b"path": b"a"}), file(b"b")), "duplicate path"),
    "directory twice": (lambda: bundle(directory(b"d/"), directory(b"./d")), "duplicate path"),
    "root twice": (lambda: bundle(directory(b"./"), directory(b".")), "duplicate path"),
    "file and directory": (lambda: bundle(file(b"a"), directory(b"a/")), "duplicate path"),
    "differ in case": (lambda: bundle(file(b"read.me"), file(b"READ.me")), "differ only in case"),
    "differ in case by folding": (lambda: bundle(file("ß".encode()), file(b"SS")), "differ only in case"),
    "differ in case, directories": (lambda: bundle(directory(b"Doc"), directory(b"doc")), "differ only in case"),
    "differ in case, implied": (lambda: bundle(file(b"Doc/a"), file(b"m"), file(b"doc/b")), "differ only in case"),
    "differ in Unicode form": (
        lambda: bundle(file("\u00e9".encode()), file("e\u0301".encode())),
        "differ only in case, Unicode",
    ),
    "differ in Unicode form and case": (
        lambda: bundle(file("\u00c9".encode()), file("e\u0301".encode())),
        "differ only in case, Unicode",
    ),
    "file, then below it": (lambda: bundle(file(b"a"), file(b"a/b")), '"a" is a file, but this path needs a directory'),
    "below it, then file": (
        lambda: bundle(file(b"a/b/c"), file(b"a")),
        '"a" is a file, but this path needs a directory',
    ),
    "file, then directory below": (lambda: bundle(file(b"a"), directory(b"a/b/")), "this path needs a directory"),
    "file, then below it in case": (lambda: bundle(file(b"a"), file(b"A/b")), "this path needs a directory"),
    "file, neighbour, below": (lambda: bundle(file(b"a"), file(b"a.b"), file(b"a/b")), "this path needs a directory"),
}

SKILL: Cases = {
    "no entries": (lambda: gzip(tar()), "SKILL.md at the root of"),
    "empty stream": (lambda: gzip(b""), "SKILL.md at the root of"),
    "no SKILL.md": (lambda: gzip(tar(file(b"README.md"))), "SKILL.md at the root of"),
    "lowercase": (lambda: gzip(tar(file(b"skill.md", SKILL_MD))), '"skill.md": rename the file to SKILL.md'),
    "other case": (lambda: gzip(tar(file(b"Skill.MD", SKILL_MD))), "rename the file to SKILL.md"),
    "lowercase as well": (lambda: bundle(file(b"skill.md")), "differ only in case"),
    "nested": (lambda: gzip(tar(file(b"pdf/SKILL.md", SKILL_MD))), "at the root.*tar -C"),
    "SKILL.md a directory": (lambda: gzip(tar(directory(b"SKILL.md/"))), "not a directory"),
    "SKILL.md an implied directory": (lambda: gzip(tar(file(b"SKILL.md/a"))), "not a directory"),
    "SKILL.md a symbolic link": (
        lambda: gzip(tar(file(b"a", SKILL_MD), header(b"SKILL.md", kind=b"2", link=b"a"))),
        '"SKILL.md": symbolic links',
    ),
    "SKILL.md a hard link": (
        lambda: gzip(tar(file(b"a", SKILL_MD), header(b"SKILL.md", kind=b"1", link=b"a"))),
        '"SKILL.md": hard links',
    ),
    "SKILL.md twice": (lambda: bundle(skill_md()), "duplicate path"),
    "SKILL.md too large": (lambda: bundle_with(SKILL_MD + b"x" * MIB), "larger than 1048576 bytes"),
    "SKILL.md empty": (lambda: bundle_with(b""), "first line must be ---"),
    "SKILL.md not UTF-8": (lambda: bundle_with(SKILL_MD + b"\xff"), "line 6: the file is not UTF-8"),
    "SKILL.md UTF-16": (lambda: bundle_with(SKILL_MD.decode().encode("utf-16")), "is UTF-16"),
    "SKILL.md UTF-16 without mark": (lambda: bundle_with(SKILL_MD.decode().encode("utf-16-be")), "NUL"),
    "SKILL.md with NUL": (lambda: bundle_with(SKILL_MD + b"\n\0"), "line 7: .*NUL"),
    "SKILL.md with a surrogate": (lambda: bundle_with(SKILL_MD + b"\xed\xa0\x80"), "not UTF-8"),
}


def unclosed(content: bytes) -> bytes:
    return bundle_with(frontmatter(b"x: " + content))


def laughs() -> bytes:
    lines = [b'a0: &a0 ["ha","ha"]'] + [b"a%d: &a%d [%s]" % (n, n, b"*a%d," % (n - 1) * 9) for n in range(1, 9)]
    return bundle_with(frontmatter(*lines))


YAML: Cases = {
    "no opening fence": (lambda: bundle_with(b"name: a\n---\n"), "line 1: no frontmatter found"),
    "blank line before the fence": (lambda: bundle_with(b"\n" + SKILL_MD), "no frontmatter found"),
    "no closing fence": (lambda: bundle_with(SKILL_MD.replace(b"\n---", b"\n")), "no closing ---"),
    "empty frontmatter": (lambda: bundle_with(b"---\n---\n"), "frontmatter is empty"),
    "a list": (lambda: bundle_with(b"---\n- a\n---\n"), "not a mapping"),
    "a word": (lambda: bundle_with(b"---\nword\n---\n"), "not a mapping"),
    "not YAML": (lambda: bundle_with(frontmatter(b"a: [1, 2")), "not YAML"),
    "tab as indentation": (lambda: bundle_with(frontmatter(b"a:\n\tb: 1")), "not YAML"),
    "control character": (lambda: bundle_with(frontmatter(b"a: \x01")), "line 4: .*YAML does not allow"),
    "30,000 brackets": (lambda: unclosed(b"[" * 30_000), "deeper than 32 levels"),
    "30,000 braces": (lambda: unclosed(b"{" * 30_000), "deeper than 32|not a scalar"),
    "30,000 lists": (lambda: bundle_with(frontmatter(b"x:\n  " + b"- " * 30_000)), "deeper than 32 levels"),
    "30,000 complex keys": (lambda: bundle_with(frontmatter(b"? " * 30_000)), "not a scalar"),
    "33 levels": (lambda: bundle_with(frontmatter(b"x: " + b"[" * 32 + b"]" * 32)), "deeper than 32 levels"),
    "too many nodes": (lambda: bundle_with(frontmatter(b"x: [" + b"1," * 5000 + b"]")), "more than 5000 nodes"),
    "too large": (lambda: bundle_with(frontmatter(b"x: " + b"x" * 65_536)), "larger than 65536 bytes"),
    "too large in bytes": (lambda: bundle_with(frontmatter(b"x: " + "é".encode() * 33_000)), "larger than 65536"),
    "billion laughs": (laughs, "anchor"),
    "anchor": (lambda: bundle_with(frontmatter(b"a: &a 1")), 'line 4: .*an anchor, "a"'),
    "anchor on a mapping": (lambda: bundle_with(frontmatter(b"a: &a {}")), "an anchor"),
    "alias": (lambda: bundle_with(frontmatter(b"a: *a")), 'an alias, "a"'),
    "tag": (lambda: bundle_with(frontmatter(b"a: !!str 1")), "explicit tag"),
    "tag that runs code": (lambda: bundle_with(frontmatter(b"a: !!python/object/apply:os.system [id]")), "tag"),
    "local tag on a mapping": (lambda: bundle_with(frontmatter(b"a: !x {}")), 'explicit tag, "!x"'),
    "bare tag": (lambda: bundle_with(frontmatter(b"a: ! 1")), "explicit tag"),
    "key twice": (lambda: bundle_with(frontmatter(b"a: 1", b"b: 2", b"a: 1")), 'line 6: .*"a" twice'),
    "key twice below": (lambda: bundle_with(frontmatter(b"x: {a: 1, a: 2}")), '"a" twice'),
    "name twice": (lambda: bundle_with(frontmatter(b"name: other")), '"name" twice'),
    "key twice as text": (lambda: bundle_with(frontmatter(b"1: a", b'"1": b')), '"1" twice'),
    "key twice by escape": (lambda: bundle_with(frontmatter(b"a: a", rb'"\x61": b')), '"a" twice'),
    "list as key": (lambda: bundle_with(frontmatter(b"[a]: b")), "not a scalar"),
    "mapping as key": (lambda: bundle_with(frontmatter(b"? {a: b}", b": c")), "not a scalar"),
    "second document": (lambda: bundle_with(frontmatter(b"...", b"a: b")), "more than one document"),
    "second document on its line": (lambda: bundle_with(frontmatter(b"--- a")), "more than one document"),
    "NUL by escape": (lambda: bundle_with(frontmatter(rb'a: "\0"')), "NUL"),
    "NUL by escape in a key": (lambda: bundle_with(frontmatter(rb'"\0": a')), "NUL"),
    "surrogate by escape": (lambda: bundle_with(frontmatter(rb'a: "\uD800"')), "invalid Unicode"),
    "no name": (lambda: bundle_with(b"---\ndescription: a\n---\n"), "no name"),
    "name empty": (lambda: bundle_with(b"---\nname:\ndescription: a\n---\n"), "line 2: .*no name"),
    "name a number": (lambda: bundle_with(b"---\nname: 7\ndescription: a\n---\n"), "name is not a string"),
    "name a list": (lambda: bundle_with(b"---\nname: [a]\ndescription: a\n---\n"), "name is not a string"),
    "name blank": (lambda: bundle_with(b"---\nname: ''\ndescription: a\n---\n"), "invalid name"),
    "name in capitals": (lambda: bundle_with(b"---\nname: Pdf\ndescription: a\n---\n"), "invalid name"),
    "name with underscore": (lambda: bundle_with(b"---\nname: a_b\ndescription: a\n---\n"), "invalid name"),
    "name with a line end": (lambda: bundle_with(b"---\nname: |\n  a\ndescription: a\n---\n"), "invalid name"),
    "name with other letters": (lambda: bundle_with("---\nname: é\ndescription: a\n---\n".encode()), "invalid name"),
    "name with edge hyphen": (lambda: bundle_with(b"---\nname: a-\ndescription: a\n---\n"), "invalid name"),
    "name with first hyphen": (lambda: bundle_with(b"---\nname: -a\ndescription: a\n---\n"), "invalid name"),
    "name with two hyphens": (lambda: bundle_with(b"---\nname: a--b\ndescription: a\n---\n"), "invalid name"),
    "name too long": (lambda: bundle_with(b"---\nname: " + b"a" * 65 + b"\ndescription: a\n---\n"), "longer than 64"),
    "no description": (lambda: bundle_with(b"---\nname: a\n---\n"), "no description"),
    "description null": (lambda: bundle_with(b"---\nname: a\ndescription: ~\n---\n"), "no description"),
    "description blank": (lambda: bundle_with(b"---\nname: a\ndescription: '  '\n---\n"), "description is empty"),
    "description a list": (lambda: bundle_with(b"---\nname: a\ndescription: [a]\n---\n"), "not a string"),
    "description too long": (
        lambda: bundle_with(b"---\nname: a\ndescription: " + "é".encode() * 1025 + b"\n---\n"),
        "line 3: .*longer than 1024",
    ),
}


def zeros(count: int) -> list[bytes]:
    return [bytes(MIB)] * (count // MIB) + [bytes(count % MIB)]


def filled(*, spare: int) -> list[bytes]:
    """As much content as is accepted but for `spare` bytes."""
    size = LIMITS.unpacked_bytes - len(SKILL_MD) - spare
    return [skill_md(), header(b"zeros", size=size), *zeros(size), bytes(-size % BLOCK)]


def incompressible() -> bytes:
    noise = random.Random(1).randbytes(30 * MIB)
    return gzip_pieces([skill_md(), header(b"noise", size=len(noise) + MIB), noise])


LARGE: Cases = {
    "one byte more than is unpacked": (lambda: gzip_pieces([*filled(spare=-1)]), "zeros.*unpacks to more"),
    "one byte more, at the end": (
        lambda: gzip_pieces([*filled(spare=0), file(b"more", b"x"), bytes(1024)]),
        "more.*unpacks to more",
    ),
    "zeros without end": (lambda: gzip_pieces([skill_md(), *zeros(200 * MIB)]), "unpacks to more"),
    "many full extended headers": (
        lambda: gzip_pieces([skill_md()] + [pax({b"comment": b"x" * 65_000}) + file(b"%d" % n) for n in range(3000)]),
        "unpacks to more",
    ),
    "noise, cut off": (incompressible, "inside this entry"),
    "entries of 32 levels, then a fault": (
        lambda: bundle(*(file(b"%04d/" % n + b"a/" * 30 + b"f") for n in range(9998)), file(b"0001")),
        "this path needs a directory",
    ),
    "combining marks": (
        lambda: bundle(
            *(pax({b"path": b"%04d" % n + "\u0301\u0323".encode() * 62}) + file(b"a") for n in range(4000)),
            pax({b"path": b"0001" + "\u0323".encode() * 62 + "\u0301".encode() * 62}),
            file(b"a"),
        ),
        "differ only in case, Unicode",
    ),
    "two thousand colons to repair": (
        lambda: bundle_with(frontmatter(*[b"k%d: a: 'b" % n for n in range(2000)], b"bad: [")),
        "not YAML",
    ),
}

HOSTILE: Cases = {
    f"{group}: {name}": case
    for group, cases in {
        "gzip": GZIP,
        "tar": TAR,
        "extended": EXTENDED,
        "type": TYPES,
        "path": PATHS,
        "skill": SKILL,
        "yaml": YAML,
        "large": LARGE,
    }.items()
    for name, case in cases.items()
}

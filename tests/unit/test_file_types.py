"""The media type of an uploaded file."""

import gzip
import io
import zipfile

import pytest

from quarterdeck.files.rules import media_type
from quarterdeck.files.service import Received


def archive(*paths: str) -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as packed:
        for path in paths:
            packed.writestr(path, "x")
    return raw.getvalue()


DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
BYTES = "application/octet-stream"
PNG = bytes.fromhex("89504e470d0a1a0a0000000d49484452") + bytes(50)


@pytest.mark.parametrize(
    ("name", "declared", "content", "expected"),
    [
        # Signatures win over names and declared types.
        ("a.txt", "text/plain", PNG, "image/png"),
        ("a", BYTES, bytes.fromhex("ffd8ffe000104a46494600010101") + b"\0\xff" * 40, "image/jpeg"),
        ("a", BYTES, b"GIF89a\x01\0\x01\0\x80\0\0\xff", "image/gif"),
        ("a", BYTES, b"RIFF\x24\0\0\0WEBPVP8 \x18\0\0\0\xff", "image/webp"),
        ("a.bin", BYTES, b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "application/pdf"),
        ("a.txt", "text/plain", b"%PDF-1.4\nplain ASCII", "application/pdf"),
        ("a.docx", BYTES, archive("[Content_Types].xml", "word/document.xml"), DOCX),
        ("a", DOCX, archive("[Content_Types].xml", "word/document.xml"), "application/zip"),
        ("a.tgz", BYTES, gzip.compress(b"x" * 100, mtime=0), "application/gzip"),
        # Text: what the caller says, then the name.
        ("a", "text/csv", b"a,b\n", "text/csv"),
        ("a.csv", BYTES, b"a,b\n", "text/csv"),
        ("a.csv", "application/json", b"[]", "application/json"),
        ("README.md", "application/x-www-form-urlencoded", "# Grüße 漢".encode(), "text/markdown"),
        ("a.yaml", "", b"a: 1\n", "application/yaml"),
        ("a.html", "", b"<p>", "text/html"),
        ("a.svg", "", b"<svg/>", "image/svg+xml"),
        ("a.ld", "application/vnd.api+json", b"{}", "application/vnd.api+json"),
        ("Makefile", BYTES, b"all:\n", "text/plain"),
        ("a.png", "image/png", b"no image", "text/plain"),
        # Text that begins like another format.
        ("a", BYTES, b"BM is a signature, and so is II*", "text/plain"),
        ("empty.png", "image/png", b"", "text/plain"),
        # Neither.
        ("a.txt", "text/plain", "Grüße".encode("latin-1"), BYTES),
        ("a.txt", "text/plain", "UTF-16".encode("utf-16"), BYTES),
        ("a.txt", "text/plain", b"a\0b", BYTES),
        ("a.txt", "text/plain", "ends in the middle of é".encode()[:-1], BYTES),
        ("a.json", "application/json", b"{\xff}", BYTES),
        ("a.mp4", "video/mp4", b"\xfe\xed\xfa\x01\x02\x03\xff", BYTES),
    ],
)
def test_media_type(name: str, declared: str, content: bytes, expected: str) -> None:
    for piece_bytes in (1, 100_000):
        received = Received(io.BytesIO())
        for at in range(0, len(content), piece_bytes):
            received.write(content[at : at + piece_bytes])
        received.write(b"", is_last=True)
        assert media_type(received.content, name, declared, is_text=received.is_text) == expected

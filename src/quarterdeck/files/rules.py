"""Media types of files: decided by the content. What the caller says only tells kinds of text apart."""

import mimetypes
import re
from typing import IO

import puremagic
from puremagic import PureError

from quarterdeck.core.text_types import MAX_LINE_LENGTH

MAX_NAME_LENGTH = MAX_LINE_LENGTH
# As `Line`, and a file name: no slash, no backslash, neither `.` nor `..`.
NAME_PATTERN = (
    r"^(?!\.{1,2}(?![\s\S]))[^\u0000-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069/\\]+(?![\s\S])"
)
NAME_FAULT = "must be a file name: without slashes and control characters, and neither . nor .."

BYTES, PDF, TEXT, ZIP = "application/octet-stream", "application/pdf", "text/plain", "application/zip"
_PDF_START, _ZIP_START = b"%PDF-", b"PK\x03\x04"
_TEXT_TYPE = re.compile(
    r"text/.+|.+/(.+\+)?(json|xml|yaml)"
    r"|application/(javascript|json5|jsonl|sql|toml|typescript|x-[a-z-]*sh|x-javascript|x-ndjson|x-tex|x-yaml)"
)
# Matches of one or two bytes happen by chance.
_LEAST_CONFIDENCE = 0.3
_USUAL_NAMES = {"application/x-gzip": "application/gzip", "audio/wave": "audio/wav", "audio/x-wav": "audio/wav"}

# Not those of the machine, so that all servers decide alike.
_by_name = mimetypes.MimeTypes()
for _ending, _type in {
    ".jsonl": "application/jsonl",
    ".md": "text/markdown",
    ".toml": "application/toml",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}.items():
    _by_name.add_type(_type, _ending)


def media_type(content: IO[bytes], name: str, declared: str, *, is_text: bool) -> str:
    """`is_text`: the content is valid UTF-8 without NUL."""
    content.seek(0)
    start = content.read(len(_PDF_START))
    if start == _PDF_START:
        # It may be ASCII from start to end.
        return PDF
    if is_text:
        known = (declared, _by_name.guess_type(name)[0], TEXT)
        return next(one for one in known if one is not None and _TEXT_TYPE.fullmatch(one))
    content.seek(0)
    try:
        found = puremagic.magic_stream(content, name)
    except PureError:
        return BYTES
    if start.startswith(_ZIP_START) and found[0].extension != puremagic.ext_from_filename(name):
        # Many formats are ZIP archives: only the name tells which.
        return ZIP
    for one in found:
        kind: str = one.mime_type.lower()
        if one.confidence >= _LEAST_CONFIDENCE and kind and not _TEXT_TYPE.fullmatch(kind):
            return _USUAL_NAMES.get(kind, kind)
    return BYTES

"""The head of a request: its line and headers, read by the grammar of RFC 9112 and nothing looser. What two readers
could take for different requests is refused here, so that no proxy in front can be made to disagree with us."""

import re
from urllib.parse import unquote_to_bytes

from msgspec import Struct

from quarterdeck.core import errors

# Every connection may hold as much in memory, and keep it for as long as a head may take.
MOST_BYTES = 64 * 1024
_MOST_HEADERS = 100
_END = b"\r\n\r\n"
_LINE_END = b"\r\n"

_TOKEN_CHARACTER = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]"
_TOKEN = _TOKEN_CHARACTER + rb"+"
_LINE = re.compile(rb"(" + _TOKEN + rb") ([\x21-\x7e\x80-\xff]+) HTTP/1\.([01])")
# Names and values exclude each other's separators, so there is one way to read them and no way back.
_FIELDS = re.compile(rb"(?:" + _TOKEN + rb":[\t\x20-\x7e\x80-\xff]*\r\n)*")
# RFC 9112 wants those before a request left alone. They are looked through again with every packet, so they are few.
_EMPTY_LINES = re.compile(rb"(?:\r\n){0,8}")
_BEGINNING = re.compile(rb"\r?\Z|" + _TOKEN_CHARACTER)
_LINE_FEED_ALONE = re.compile(rb"(?<!\r)\n")
_WHOLE_ADDRESS = re.compile(rb"https?://([^/?#]+)(.*)", re.IGNORECASE)
# So many that it fits into 64 bits.
_LENGTH = re.compile(rb"[0-9]{1,19}")

RawHeaders = list[tuple[bytes, bytes]]


class Head(Struct, frozen=True):
    method: str
    path: str
    raw_path: bytes
    query: bytes
    # Names in small letters.
    headers: RawHeaders
    is_1_0: bool
    # Of the body; None: it comes in chunks.
    length: int | None
    # Nothing more is read from the connection after this request.
    is_last: bool
    expects_continue: bool


def split_head(data: bytes, seen: int) -> tuple[bytes, bytes] | None:
    """The head without its end, and what follows. None: it is not there as a whole. Raises once it never can be.
    `seen`: how much of it was there at the last look, and is not looked through again."""
    begin = _EMPTY_LINES.match(data).end()  # type: ignore[union-attr]
    end = data.find(_END, max(begin, seen - len(_END)), MOST_BYTES)
    if end >= 0:
        return data[begin:end], data[end + len(_END) :]
    if not _BEGINNING.match(data, begin):
        raise errors.malformed("This is no request of HTTP/1.1.")
    if _LINE_FEED_ALONE.search(data, max(0, seen - 1)):
        raise errors.malformed("Lines must end in CR and LF.")
    if len(data) >= MOST_BYTES:
        raise errors.large_head(MOST_BYTES) if _LINE_END in data[begin:MOST_BYTES] else errors.long_line(MOST_BYTES)
    return None


def read_head(text: bytes) -> Head:
    line, _, fields = text.partition(_LINE_END)
    match = _LINE.fullmatch(line)
    if match is None:
        raise errors.malformed("The request line is not `METHOD target HTTP/1.1`.")
    method, target, minor = match.groups()
    headers = read_fields(fields + _LINE_END if fields else b"", "header")
    path, query, authority = _read_target(method, target)
    # Proxies and caches send it; who sends both means the same.
    if authority is not None and not any(name == b"host" for name, _ in headers):
        headers.append((b"host", authority))
    is_1_0 = minor == b"0"
    length, is_last, expects_continue = _read_framing(headers, is_1_0)
    return Head(
        method=method.decode("ascii"),
        path=_decoded(path),
        raw_path=path,
        query=query,
        headers=headers,
        is_1_0=is_1_0,
        length=length,
        is_last=is_last,
        expects_continue=expects_continue,
    )


def read_fields(text: bytes, what: str) -> RawHeaders:
    """Lines of headers or trailers, each with its end."""
    if not _FIELDS.fullmatch(text):
        raise errors.malformed(f"A {what} line is not `name: value`.")
    lines = text.split(_LINE_END)[:-1]
    if len(lines) > _MOST_HEADERS:
        raise errors.many_headers(_MOST_HEADERS)
    split = [line.partition(b":") for line in lines]
    return [(name.lower(), value.strip()) for name, _, value in split]


def _read_target(method: bytes, target: bytes) -> tuple[bytes, bytes, bytes | None]:
    """Path, query, and the host that is part of it."""
    authority = None
    if not target.startswith(b"/") and method != b"CONNECT" and target != b"*":
        match = _WHOLE_ADDRESS.fullmatch(target)
        if match is None:
            raise errors.malformed("The target is neither a path nor an address.")
        authority, target = match.groups()
        if not target.startswith(b"/"):
            target = b"/" + target
    if not target.isascii():
        try:
            target.decode()
        except UnicodeDecodeError:
            raise errors.malformed("The target is not UTF-8.") from None
    path, _, query = target.partition(b"?")
    return path, query, authority


def _decoded(path: bytes) -> str:
    return (unquote_to_bytes(path) if b"%" in path else path).decode("utf-8", "replace")


def _read_framing(headers: RawHeaders, is_1_0: bool) -> tuple[int | None, bool, bool]:
    lengths: set[bytes] = set()
    codings: list[bytes] = []
    is_last, expects_continue = is_1_0, False
    for name, value in headers:
        if name == b"content-length":
            lengths.add(value)
        elif name == b"transfer-encoding":
            codings.append(value.lower())
        elif name == b"connection":
            is_last = is_last or b"close" in [token.strip() for token in value.lower().split(b",")]
        elif name == b"expect":
            expects_continue = not is_1_0 and value.lower() == b"100-continue"
    length = _read_length(lengths)
    if not codings:
        return length or 0, is_last, expects_continue
    if is_1_0 or codings != [b"chunked"]:
        raise errors.unknown_coding()
    # With a length as well, RFC 9112 wants what follows left alone.
    return None, is_last or length is not None, expects_continue


def _read_length(given: set[bytes]) -> int | None:
    if not given:
        return None
    (first, *others) = given
    if others or not _LENGTH.fullmatch(first):
        raise errors.malformed("Content-Length is not one number.")
    return int(first)

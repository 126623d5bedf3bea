"""The head of an answer, and how its body is framed."""

import time
from email.utils import formatdate
from enum import Enum
from http import HTTPStatus

from quarterdeck.wire.head import Head, RawHeaders

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
_WITHOUT_BODY = {204, 304}
_CLOSE = b"connection: close\r\n"


class Framing(Enum):
    # As long as was announced.
    PLAIN = "plain"
    CHUNKED = "chunked"
    # For HTTP/1.0, which knows no chunks.
    UNTIL_CLOSED = "until closed"
    NOTHING = "nothing"


def answer_head(
    request: Head, status: int, headers: RawHeaders, whole_bytes: int | None, *, is_last: bool
) -> tuple[bytes, Framing]:
    """`whole_bytes`: how long the body is, if it is there as a whole."""
    lines = [_LINES[status], _date(), *[b"%b: %b\r\n" % header for header in headers]]
    names = dict(headers)
    framing = Framing.PLAIN
    if request.method == "HEAD" or status in _WITHOUT_BODY:
        framing = Framing.NOTHING
    elif b"content-length" in names:
        pass
    elif whole_bytes is not None:
        lines.append(b"content-length: %d\r\n" % whole_bytes)
    elif request.is_1_0:
        framing = Framing.UNTIL_CLOSED
    else:
        framing = Framing.CHUNKED
        lines.append(b"transfer-encoding: chunked\r\n")
    if is_last and b"connection" not in names:
        lines.append(_CLOSE)
    lines.append(b"\r\n")
    head = b"".join(lines)
    if head.count(b"\n") != len(lines) or head.count(b"\r") != len(lines):
        # Whoever got a line end into a value would write the rest of the answer.
        raise ValueError("a header of an answer has a line end in it")
    return head, framing


def framed(piece: bytes, framing: Framing) -> bytes:
    if framing is Framing.CHUNKED:
        return b"%x\r\n%b\r\n" % (len(piece), piece) if piece else b""
    return b"" if framing is Framing.NOTHING else piece


class _Clock:
    second = 0
    line = b""


def _date() -> bytes:
    """Written once a second."""
    now = int(time.time())
    if now != _Clock.second:
        _Clock.second, _Clock.line = now, f"date: {formatdate(now, usegmt=True)}\r\n".encode()
    return _Clock.line

"""Requests that Granian refuses by itself: the table in docs/use/http.md, row by row. Over raw sockets."""

import re
from typing import NamedTuple

import pytest

from tests.pages import ROOT
from tests.raw_http import Wire, request
from tests.world import Server

LINE = "No request line"
TARGET = "A target with"
HEADER = "A header line"
LENGTH = "A Content-Length"
CODING = "A Transfer-Encoding"
LARGE = "A target of more"
PREFACE = "The preface"
# Tested in tests/contract/test_http_timeouts.py.
SLOW = "A head that is not complete"

BODY = b'{"type":"input","text":"x"}'
CHUNKED = b"1b\r\n" + BODY + b"\r\n0\r\n\r\n"
NEXT = request("GET", "/healthz", "X-Request-Id: next")


class Case(NamedTuple):
    row: str
    name: str
    sent: bytes


def line(text: bytes) -> bytes:
    return text + b"\r\nHost: a\r\n\r\n"


def head(*headers: bytes) -> bytes:
    return request("GET", "/healthz", *headers)


def post(*headers: bytes, body: bytes = BODY) -> bytes:
    return request("POST", "/v1/sessions", *headers, body=body)


CASES = [
    Case(LINE, "nonsense", b"nonsense\r\n\r\n"),
    Case(LINE, "bytes", bytes(range(256)) + b"\r\n\r\n"),
    Case(LINE, "TLS", bytes.fromhex("16030100f0010000ec0303") + bytes(200)),
    Case(LINE, "SSH", b"SSH-2.0-OpenSSH_9.9\r\n\r\n"),
    Case(LINE, "PROXY", b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n" + head()),
    Case(LINE, "HTTP/0.9", b"GET /healthz\r\n\r\n"),
    Case(LINE, "HTTP/1.2", line(b"GET /healthz HTTP/1.2")),
    Case(LINE, "HTTP/2.0", line(b"GET /healthz HTTP/2.0")),
    Case(LINE, "HTTP/1.01", line(b"GET /healthz HTTP/1.01")),
    Case(LINE, "small letters", line(b"GET /healthz http/1.1")),
    Case(LINE, "method with =", line(b"G=T /healthz HTTP/1.1")),
    Case(LINE, "two blanks", line(b"GET  /healthz  HTTP/1.1")),
    Case(LINE, "tabs", line(b"GET\t/healthz\tHTTP/1.1")),
    Case(LINE, "bare CR", head().replace(b"\r\n", b"\r") + b"\r\n\r\n"),
    Case(TARGET, "none", line(b"GET  HTTP/1.1")),
    Case(TARGET, "blank", line(b"GET /a b HTTP/1.1")),
    Case(TARGET, "NUL", line(b"GET /healthz?\0 HTTP/1.1")),
    Case(TARGET, "not UTF-8", line(b"GET /\xff\xfe HTTP/1.1")),
    Case(TARGET, "query not UTF-8", line(b"GET /healthz?a=\xff HTTP/1.1")),
    Case(TARGET, "query alone", line(b"GET ?a HTTP/1.1")),
    Case(TARGET, "backslash", line(b"GET \\healthz HTTP/1.1")),
    Case(HEADER, "folded", head(b"X-A: b\r\n c")),
    Case(HEADER, "blank before the first", b"GET /healthz HTTP/1.1\r\n Host: a\r\n\r\n"),
    Case(HEADER, "NUL in the value", head(b"X-A: a\0b")),
    Case(HEADER, "CR in the value", head(b"X-A: a\rb")),
    Case(HEADER, "control character in the value", head(b"X-A: a\x01b")),
    Case(HEADER, "blank in the name", head(b"X A: b")),
    Case(HEADER, "blank behind the name", head(b"X-A : b")),
    Case(HEADER, "no name", head(b": b")),
    Case(HEADER, "no colon", head(b"Nonsense")),
    Case(HEADER, "NUL in the name", head(b"X\0A: b")),
    Case(HEADER, "other letters in the name", head("é: b".encode())),
    Case(HEADER, "coding with a blank", post(b"Transfer-Encoding : chunked", b"Content-Length: 27")),
    Case(LENGTH, "two", post(b"Content-Length: 27", b"Content-Length: 5")),
    Case(LENGTH, "two, the larger last", post(b"Content-Length: 5", b"Content-Length: 27")),
    Case(LENGTH, "list", post(b"Content-Length: 27, 27")),
    Case(LENGTH, "plus", post(b"Content-Length: +27")),
    Case(LENGTH, "minus", post(b"Content-Length: -1")),
    Case(LENGTH, "hexadecimal", post(b"Content-Length: 0x1b")),
    Case(LENGTH, "blank within", post(b"Content-Length: 2 7")),
    Case(LENGTH, "empty", post(b"Content-Length:")),
    Case(LENGTH, "other digits", post("Content-Length: ２７".encode())),
    Case(LENGTH, "20 digits", post(b"Content-Length: 99999999999999999999")),
    Case(CODING, "identity", post(b"Transfer-Encoding: identity", body=CHUNKED)),
    Case(CODING, "identity and length", post(b"Transfer-Encoding: identity", b"Content-Length: 27")),
    Case(CODING, "xchunked", post(b"Transfer-Encoding: xchunked", b"Content-Length: 27")),
    Case(CODING, "chunked, then gzip", post(b"Transfer-Encoding: chunked, gzip", body=CHUNKED)),
    Case(CODING, "two lines", post(b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip", body=CHUNKED)),
    Case(CODING, "parameter", post(b"Transfer-Encoding: chunked;q=1", body=CHUNKED)),
    Case(CODING, "quoted", post(b'Transfer-Encoding: "chunked"', body=CHUNKED)),
    Case(CODING, "empty", post(b"Transfer-Encoding:", body=CHUNKED)),
    Case(CODING, "HTTP/1.0", post(b"Transfer-Encoding: chunked", body=CHUNKED).replace(b"HTTP/1.1", b"HTTP/1.0")),
    Case(LARGE, "path", line(b"GET /" + b"a" * 65_536 + b" HTTP/1.1")),
    Case(LARGE, "query", line(b"GET /healthz?" + b"a" * 65_536 + b" HTTP/1.1")),
    Case(LARGE, "method", line(b"A" * 1_000_000 + b" /healthz HTTP/1.1")),
    Case(LARGE, "target", line(b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1")),
    Case(LARGE, "101", head(*[b"X-A: b"] * 100)),
    Case(LARGE, "5,000", head(*[b"X-A: b"] * 5_000)),
    Case(LARGE, "header", head(b"X-A: " + b"a" * 1_000_000)),
    Case(LARGE, "headers", head(*[b"X-A: " + b"a" * 10_000] * 50)),
    Case(PREFACE, "alone", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
]


def documented() -> dict[str, set[int]]:
    """The statuses of each row. Empty: the connection is closed without a response."""
    text = (ROOT / "docs/use/http.md").read_text("utf-8")
    rows = re.findall(r"^\| (.+) \| (\d{3}|\d{3} or \d{3}|none) \|$", text, re.MULTILINE)
    return {sent: {int(status) for status in re.findall(r"\d{3}", answer)} for sent, answer in rows}


def statuses_of(row: str) -> set[int]:
    (found,) = [statuses for sent, statuses in documented().items() if sent.startswith(row)]
    return found


def test_every_row_has_cases() -> None:
    rows = {case.row for case in CASES} | {SLOW}
    assert [sent for sent in documented() if sum(sent.startswith(row) for row in rows) != 1] == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.row}: {case.name}")
def test_is_refused_and_closes(server: Server, case: Case) -> None:
    statuses = statuses_of(case.row)
    with Wire(server.port) as wire:
        wire.send_what_it_takes(case.sent + NEXT)
        if statuses:
            answer = wire.answer()
            assert answer.status in statuses
            assert answer.header("connection") == "close"
        assert wire.is_closed(), "the bytes behind the refused request are not read"
    with Wire(server.port) as wire:
        wire.send(NEXT)
        assert wire.answer().status == 200


def test_the_limits_themselves_are_allowed(server: Server) -> None:
    for sent, status in (
        (head(*[b"X-A: b"] * 99), 200),
        (head(b"X-A: " + b"a" * 60_000), 200),
        (line(b"GET /" + b"a" * 65_000 + b" HTTP/1.1"), 404),
    ):
        with Wire(server.port) as wire:
            wire.send(sent + NEXT)
            assert wire.answer().status == status
            assert wire.answer().header("x-request-id") == "next"

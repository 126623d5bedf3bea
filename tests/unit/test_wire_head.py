"""Heads of requests, held against h11's reading of the same bytes. Whatever we take for a request, h11 takes for the
same one; where we refuse what it takes, the reason is one of `STRICTER`."""

import re
from collections.abc import Iterable

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from quarterdeck.core.errors import Kind, ServiceError
from quarterdeck.wire.head import MOST_BYTES, Head, read_head, split_head

Outcome = tuple[Head, bytes] | Kind | None


def read(packets: Iterable[bytes]) -> Outcome:
    """As a connection does it: a head and what follows, why it is refused, or None while it is not there as a whole."""
    data, seen, arriving = b"", 0, iter(packets)
    for packet in arriving:
        data += packet
        try:
            found = split_head(data, seen)
            if found is not None:
                return read_head(found[0]), found[1] + b"".join(arriving)
        except ServiceError as refusal:
            return refusal.kind
        seen = len(data)
    return None


def accepted(data: bytes) -> Head:
    outcome = read([data])
    assert isinstance(outcome, tuple), outcome
    return outcome[0]


# --- generated heads ---

BLANKS = st.sampled_from([b"", b" ", b"\t", b" \t "])
TOKENS = st.sampled_from([b"GET", b"POST", b"HEAD", b"brew", b"X-Y", b"!#$%&'*+-.^_`|~09"])
TARGETS = st.sampled_from([b"/", b"/a/b?c=d%20e", b"*", b"http://a.test/b", b"HTTP://a?c", b"/a#b", b"//a", b"a", b"?"])
VALUES = st.sampled_from(
    b"|b|a b\tc|\x80\xff|a:b|close|Keep-Alive, CLOSE|100-Continue|5|0|05|5, 5|9999999999999999999|99999999999999999999|"
    b"chunked|CHUNKED|gzip, chunked|identity|\x01|\x7f".split(b"|")
)
NAMES = st.sampled_from([b"Connection", b"Content-Length", b"TRANSFER-ENCODING", b"Expect", b"X-A", b"content-length"])
LINES = st.builds(lambda *parts: b"%b:%b%b%b\r\n" % parts, NAMES | TOKENS, BLANKS, VALUES, BLANKS)
HEADS = st.builds(
    lambda method, target, version, lines: b"%b %b HTTP/%b\r\nHost: a\r\n%b\r\n" % (method, target, version, lines),
    TOKENS,
    TARGETS,
    st.sampled_from([b"1.1", b"1.1", b"1.1", b"1.0", b"1.2", b"2.0"]),
    st.lists(LINES, max_size=4).map(b"".join),
)
PIECES = st.sampled_from(
    [b"\r", b"\n", b"\r\n", b"\r\n\r\n", b" ", b"\t", b":", b",", b"\0", b"\x0b", b"\x7f", b"\x80", b"\xc3\xa9", b"a"]
)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    data = draw(HEADS)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        data = data[:at] + draw(st.just(b"") | PIECES) + data[at + draw(st.integers(0, 2)) :]
    return data


@st.composite
def packets_of(draw: st.DrawFn) -> list[bytes]:
    data = draw(mutated()) + draw(st.sampled_from([b"", b"body", b"GET / HTTP/1.1\r\n\r\n"]))
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=6)))
    return [data[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@given(packets_of())
def test_packets_make_no_difference(packets: list[bytes]) -> None:
    whole = b"".join(packets)
    assert read(packets) == read([whole]) == read([bytes([byte]) for byte in whole])


# --- as h11 reads them ---


def request_of(data: bytes) -> tuple[h11.Request, h11.Connection] | None:
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(data)
    try:
        event = connection.next_event()
    except h11.RemoteProtocolError:
        return None
    return (event, connection) if isinstance(event, h11.Request) else None


# What h11 leaves to its user, or refuses although RFC 9112 has it.
LOOSER = {
    "empty lines before it": re.compile(rb"(\r\n)+"),
    "Host is looked at by the application": re.compile(rb"(?is)(?!.*\r\nHost:)|.*\r\nHost:.*\r\nHost:"),
    "letters beyond ASCII in the target": re.compile(rb"[^ ]+ [^ ]*[\x80-\xff]"),
}
STRICTER = {
    "LF alone": re.compile(rb"(?s).*(?<!\r)\n"),
    "a folded line": re.compile(rb"(?s).*\r\n[ \t]"),
    "control characters": re.compile(rb"(?s).*[\x01-\x08\x0b-\x0c\x0e-\x1f\x7f]"),
    "a CR within a line": re.compile(rb"(?s).*\r(?!\n)"),
    "another version": re.compile(rb"[^\r]* HTTP/(?!1\.[01]\r)"),
    "no path and no address": re.compile(rb"(?i)(?!CONNECT )[^ ]+ (?!/|\* |https?://[^/?# ])"),
    "a list of lengths": re.compile(rb"(?is).*\r\ncontent-length:[^\r]*,"),
    "a length beyond 64 bits": re.compile(rb"(?is).*\r\ncontent-length:[ \t]*[0-9]{20}"),
    "chunks in HTTP/1.0": re.compile(rb"(?is)[^\r]*HTTP/1\.0\r.*\r\ntransfer-encoding:"),
}


def reasons(data: bytes, known: dict[str, "re.Pattern[bytes]"]) -> list[str]:
    return [name for name, pattern in known.items() if pattern.match(data)]


@given(mutated())
@example(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, CLOSE\r\n\r\n")
@example(b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n")
@example(b"GET / HTTP/1.1\r\nHost: a\r\nX-A: \0\r\n\r\n")
@example(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n")
def test_what_we_take_h11_takes_for_the_same(data: bytes) -> None:
    outcome = read([data])
    theirs = request_of(data)
    if not isinstance(outcome, tuple):
        assert theirs is None or reasons(data, STRICTER), outcome
        return
    head, rest = outcome
    if theirs is None:
        assert reasons(data.removesuffix(rest), LOOSER)
        return
    request, connection = theirs
    assert (head.method.encode(), head.is_1_0) == (request.method, request.http_version == b"1.0")
    # An address may leave out the path.
    target = head.raw_path.removeprefix(b"/") + (b"?" + head.query if head.query else b"")
    assert request.target.removesuffix(b"?").endswith(target)
    assert comparable(head.headers) == comparable([*request.headers, *added_host(request)])
    if dict(head.headers).get(b"expect", b"").lower() in (b"", b"100-continue"):
        assert head.expects_continue == connection.they_are_waiting_for_100_continue
    assert rest == connection.trailing_data[0]
    assert (head.length, head.is_last) == framing_of(connection, head)


def added_host(request: h11.Request) -> list[tuple[bytes, bytes]]:
    """From an address, where HTTP/1.0 may leave out the header."""
    match = re.match(rb"(?i)https?://([^/?#]+)", request.target)
    return [(b"host", match[1])] if match and b"host" not in dict(request.headers) else []


def comparable(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """h11 leaves out a second length that says the same, and writes codings in small letters."""
    others = [(name, value) for name, value in headers if name != b"content-length"]
    return [(name, value.lower() if name == b"transfer-encoding" else value) for name, value in others]


def framing_of(connection: h11.Connection, head: Head) -> tuple[int | None, bool]:
    """Length and whether it is the last, by what h11 takes of what follows."""
    body = b"7;a\r\nchunked\r\n0\r\n\r\n" if head.length is None else b"x" * min(head.length, 100)
    connection.receive_data(body)
    taken = b""
    while isinstance(event := connection.next_event(), h11.Data):
        taken += event.data
    if event is h11.NEED_DATA:
        assert head.length is not None
        assert head.length > len(taken) == 100
        return head.length, head.is_last
    assert isinstance(event, h11.EndOfMessage)
    is_chunked = taken == b"chunked"
    # RFC 9112 wants a connection closed on which both were said. h11 leaves that to its user.
    is_doubtful = is_chunked and any(name == b"content-length" for name, _ in head.headers)
    return None if is_chunked else len(taken), connection.their_state is h11.MUST_CLOSE or is_doubtful


# --- limits, and what costs no more than its bytes ---


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"GET /%b HTTP/1.1\r\nHost: a\r\n\r\n", Kind.LONG_LINE),
        (b"%b / HTTP/1.1\r\nHost: a\r\n\r\n", Kind.LONG_LINE),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: %b\r\n\r\n", Kind.LARGE_HEAD),
        (b"GET / HTTP/1.1\r\nHost: a\r\n%b: x\r\n\r\n", Kind.LARGE_HEAD),
    ],
)
def test_a_head_has_a_most(data: bytes, kind: Kind) -> None:
    room = MOST_BYTES - len(data) + len(b"%b")
    assert accepted(data % (b"a" * room)).length == 0
    assert read([data % (b"a" * (room + 1))]) == Kind.LARGE_HEAD
    assert read([data % (b"a" * MOST_BYTES)]) == kind
    assert read([(data % (b"a" * MOST_BYTES))[:MOST_BYTES]]) == kind, "before the rest is there"


def test_headers_have_a_most() -> None:
    head = b"GET / HTTP/1.1\r\n%b\r\n"
    assert len(accepted(head % (b"a: b\r\n" * 100)).headers) == 100
    assert read([head % (b"a: b\r\n" * 101)]) == Kind.LARGE_HEAD


def test_empty_lines_before_a_request_have_a_most() -> None:
    """Each packet has them looked through again."""
    assert accepted(b"\r\n" * 8 + b"GET / HTTP/1.1\r\n\r\n").path == "/"
    assert read([b"\r\n" * 9]) == Kind.MALFORMED
    assert read([b"\r\n"] * 9) == Kind.MALFORMED


def test_a_head_that_trickles_is_looked_through_once() -> None:
    """By what is searched, since time tells little here."""
    searched = 0

    class Counting(bytes):
        def find(self, *arguments: object) -> int:
            nonlocal searched
            begin, end = arguments[1:]
            assert isinstance(begin, int)
            assert isinstance(end, int)
            searched += max(0, min(end, len(self)) - begin)
            return super().find(*arguments)  # type: ignore[arg-type]

    data = b"GET / HTTP/1.1\r\nX: " + b"a" * 3000
    for length in range(1, len(data)):
        assert split_head(Counting(data[:length]), length - 1) is None
    assert searched <= 6 * len(data)


@pytest.mark.parametrize(
    ("target", "path", "query", "host"),
    [
        (b"/a%2Fb?c=%20?", "/a/b", b"c=%20?", None),
        ("/é".encode(), "/é", b"", None),
        (b"/%FF", "/\ufffd", b"", None),
        (b"http://a.test:1/b?c", "/b", b"c", b"a.test:1"),
        (b"HTTPS://a.test?c", "/", b"c", b"a.test"),
        (b"http://a.test", "/", b"", b"a.test"),
        (b"*", "*", b"", None),
    ],
)
def test_targets(target: bytes, path: str, query: bytes, host: bytes | None) -> None:
    head = accepted(b"GET %b HTTP/1.1\r\n\r\n" % target)
    assert (head.path, head.query, dict(head.headers).get(b"host")) == (path, query, host)


def test_a_host_that_is_there_is_left_alone() -> None:
    assert accepted(b"GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n").headers == [(b"host", b"b")]

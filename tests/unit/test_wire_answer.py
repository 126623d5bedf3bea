"""The head of an answer, without a connection. h11 reads what we write."""

import h11
import pytest

from quarterdeck.wire.answer import LAST_CHUNK, Framing, answer_head, framed
from quarterdeck.wire.head import Head, RawHeaders, read_head


def asked(method: str = "GET", version: str = "1.1") -> Head:
    return read_head(f"{method} / HTTP/{version}".encode())


def read(method: str, head: bytes, body: bytes, *, closed: bool = False) -> tuple[h11.Response, bytes]:
    """As a client reads it: the answer and its body, which must end here."""
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method=method, target="/", headers=[("Host", "a")]))
    connection.send(h11.EndOfMessage())
    connection.receive_data(head + body)
    if closed:
        connection.receive_data(b"")
    response, found = connection.next_event(), b""
    assert isinstance(response, h11.Response)
    while isinstance(event := connection.next_event(), h11.Data):
        found += event.data
    assert isinstance(event, h11.EndOfMessage)
    assert connection.trailing_data[0] == b""
    return response, found


@pytest.mark.parametrize("headers", [[], [(b"content-length", b"4")]], ids=["", "announced"])
def test_a_whole_body_has_its_length(headers: RawHeaders) -> None:
    head, framing = answer_head(asked(), 200, headers, 4, is_last=False)
    assert framing is Framing.PLAIN
    response, body = read("GET", head, framed(b"body", framing))
    assert (response.status_code, response.reason, body) == (200, b"OK", b"body")
    assert [value for name, value in response.headers if name == b"content-length"] == [b"4"]
    assert dict(response.headers)[b"date"].endswith(b" GMT")
    assert b"connection" not in dict(response.headers)


def test_a_body_without_a_length_comes_in_chunks() -> None:
    head, framing = answer_head(asked(), 200, [], None, is_last=False)
    assert framing is Framing.CHUNKED
    pieces = [b"a" * 300, b"", b"bc"]
    data = b"".join(framed(piece, framing) for piece in pieces) + LAST_CHUNK
    assert read("GET", head, data)[1] == b"".join(pieces), "an empty piece would be the end"


def test_http_1_0_gets_it_until_the_end_of_the_connection() -> None:
    head, framing = answer_head(asked(version="1.0"), 200, [], None, is_last=True)
    assert framing is Framing.UNTIL_CLOSED
    response, body = read("GET", head, framed(b"body", framing), closed=True)
    assert body == b"body"
    assert dict(response.headers)[b"connection"] == b"close"
    assert answer_head(asked(version="1.0"), 200, [], 4, is_last=True)[1] is Framing.PLAIN


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("HEAD", 404), ("GET", 204), ("GET", 304)])
@pytest.mark.parametrize("whole_bytes", [0, 4, None])
def test_some_have_no_body(method: str, status: int, whole_bytes: int | None) -> None:
    head, framing = answer_head(asked(method), status, [(b"etag", b'"1"')], whole_bytes, is_last=False)
    assert framing is Framing.NOTHING
    assert framed(b"body", framing) == b""
    response, body = read(method, head, b"")
    assert (response.status_code, body) == (status, b"")
    assert {b"content-length", b"transfer-encoding"}.isdisjoint(dict(response.headers))


def test_head_tells_the_length_of_what_get_would_give() -> None:
    head, _ = answer_head(asked("HEAD"), 200, [(b"content-length", b"1000")], 0, is_last=False)
    assert dict(read("HEAD", head, b"")[0].headers)[b"content-length"] == b"1000"


@pytest.mark.parametrize("headers", [[], [(b"connection", b"close")]], ids=["", "said already"])
def test_the_last_answer_says_so_once(headers: RawHeaders) -> None:
    head, _ = answer_head(asked(), 200, headers, 0, is_last=True)
    assert head.lower().count(b"connection: close\r\n") == 1


@pytest.mark.parametrize("end", [b"\r\n", b"\n", b"\r"])
@pytest.mark.parametrize("pattern", [b"a%bb", b"a%b", b"%ba"])
def test_no_header_ends_its_own_line(end: bytes, pattern: bytes) -> None:
    """Some take CR alone for the end of a line."""
    for headers in ([(b"x-a", pattern % end)], [(pattern % end, b"a")]):
        with pytest.raises(ValueError, match="line end"):
            answer_head(asked(), 200, headers, 0, is_last=False)

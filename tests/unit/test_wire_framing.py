"""Bodies, held against h11's reading of the same bytes."""

import re

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.core.errors import ServiceError
from quarterdeck.wire.framing import Chunked, Sized

MOST_LINE_BYTES = 16 * 1024
# The body, whether it has ended, and what follows it; None: it is refused.
Outcome = tuple[bytes, bool, bytes] | None


def read(body: Sized | Chunked, packets: list[bytes]) -> Outcome:
    found = b""
    for number, packet in enumerate(packets):
        try:
            piece, rest = body.feed(packet)
        except ServiceError:
            return None
        found += piece
        if body.has_ended:
            return found, True, rest + b"".join(packets[number + 1 :])
        assert rest == b""
    return found, body.has_ended, b""


def as_h11(coding: bytes, data: bytes) -> Outcome:
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(b"POST / HTTP/1.1\r\nHost: a\r\n%b\r\n\r\n" % coding)
    assert isinstance(connection.next_event(), h11.Request)
    connection.receive_data(data)
    found = b""
    try:
        while isinstance(event := connection.next_event(), h11.Data):
            found += event.data
    except h11.RemoteProtocolError:
        return None
    has_ended = isinstance(event, h11.EndOfMessage)
    return found, has_ended, connection.trailing_data[0] if has_ended else b""


@st.composite
def cut(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """An event loop hands on no empty packet."""
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=6)))
    pieces = [data[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    return [piece for piece in pieces if piece]


EXTENSIONS = st.sampled_from([b"", b";a", b';a="b;c"', b"; a=b", b" ", b"\t"])
CHUNKS = st.builds(
    lambda zeros, data, extension: b"%b%x%b\r\n%b\r\n" % (b"0" * zeros, len(data), extension, data),
    st.integers(0, 3),
    st.binary(min_size=1, max_size=40),
    EXTENSIONS,
)
ENDS = st.builds(
    lambda extension, trailers: b"0%b\r\n%b\r\n" % (extension, trailers),
    EXTENSIONS,
    st.sampled_from([b"", b"a: b\r\n", b"a: b\r\nDigest: 5\r\n"]),
)
BODIES = st.builds(
    lambda chunks, end, rest: b"".join(chunks) + end + rest,
    st.lists(CHUNKS, max_size=4),
    ENDS,
    st.sampled_from([b"", b"GET / HTTP/1.1\r\n\r\n", b"\r\n"]),
)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    data: bytes = draw(BODIES)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        piece = draw(st.sampled_from([b"", b"\r", b"\n", b"\r\n", b" ", b";", b"0", b"f", b"-", b"x", b"\0", b"_"]))
        data = data[:at] + piece + data[at + draw(st.integers(0, 2)) :]
    return data


@given(st.integers(0, 20), st.binary(min_size=1, max_size=30), st.data())
def test_a_length_is_kept_to(length: int, sent: bytes, data: st.DataObject) -> None:
    outcome = read(Sized(length), data.draw(cut(sent)))
    assert outcome == as_h11(b"Content-Length: %d" % length, sent)


@given(mutated(), st.data())
def test_packets_make_no_difference(sent: bytes, data: st.DataObject) -> None:
    whole = read(Chunked(), [sent])
    assert read(Chunked(), data.draw(cut(sent))) == whole
    assert read(Chunked(), [bytes([byte]) for byte in sent]) == whole


@given(BODIES)
def test_what_is_well_framed_is_read_as_h11_reads_it(sent: bytes) -> None:
    outcome = read(Chunked(), [sent])
    assert outcome is not None
    assert outcome == as_h11(b"Transfer-Encoding: chunked", sent)


@given(mutated())
def test_what_we_take_h11_takes_for_the_same(sent: bytes) -> None:
    """But for blanks before an extension, which RFC 9112 has and h11 refuses. What we refuse and it takes: LF alone and
    control characters, in extensions and trailers."""
    outcome = read(Chunked(), [sent])
    if outcome is not None and outcome[1] and not re.search(rb"[ \t];", sent):
        assert outcome == as_h11(b"Transfer-Encoding: chunked", sent)


@pytest.mark.parametrize(
    ("before", "line", "behind"),
    [(b"", b"1;%b\r\n", b"x\r\n0\r\n\r\n"), (b"", b"0%b1\r\n", b"x\r\n0\r\n\r\n"), (b"0\r\n", b"a: %b\r\n\r\n", b"")],
    ids=["extension", "size", "trailers"],
)
def test_lines_have_a_most(before: bytes, line: bytes, behind: bytes) -> None:
    room = MOST_LINE_BYTES - len(line % b"")
    longest, too_long = (before + line % (b"0" * length) + behind for length in (room, room + 1))
    for packets in ([longest], [bytes([byte]) for byte in longest]):
        outcome = read(Chunked(), packets)
        assert outcome is not None
        assert outcome[1]
    for packets in ([too_long], [bytes([byte]) for byte in too_long], [too_long[: len(before) + MOST_LINE_BYTES]]):
        assert read(Chunked(), packets) is None


@pytest.mark.parametrize("size", [b"fffffffffffffff", b"0" * 100 + b"fffffffffffffff"])
def test_sizes_have_a_most(size: bytes) -> None:
    assert read(Chunked(), [size + b"\r\nx"]) == (b"x", False, b"")
    assert read(Chunked(), [size + b"f\r\nx"]) is None


def test_work_grows_with_what_came() -> None:
    """Counted in steps, of which each is bounded by the most that a line may have."""
    steps = 0

    class Counting(Chunked):
        def __setattr__(self, name: str, value: object) -> None:
            nonlocal steps
            steps += 1
            super().__setattr__(name, value)

    for packets in ([b"1\r\nx\r\n" * 1000], [b"1\r\nx\r\n"] * 1000, [b"1", b"\r", b"\n", b"x", b"\r", b"\n"] * 1000):
        steps, body = 0, Counting()
        assert read(body, packets) == (b"x" * 1000, False, b"")
        assert steps < 6 * 1000 + 3 * len(packets)
    steps, body = 0, Counting()
    assert read(body, [b"f423f\r\n", *[b"x" * 100] * 999]) == (b"x" * 99_900, False, b"")
    assert steps < 6 * 1000

"""Bounds on what MCP servers send."""

import pytest

from quarterdeck.connections.mcp.answers import clean_start
from quarterdeck.connections.mcp.guarded_streams import DecodingCost, decodes_quickly

_MANY = b"[],"
_PIECE = _MANY * 2000


def _refused_after(pieces: list[bytes], *, is_event_stream: bool) -> int | None:
    """The number of the piece that is refused."""
    cost = DecodingCost(is_event_stream=is_event_stream)
    return next((number for number, piece in enumerate(pieces) if cost.exceeds(piece)), None)


@pytest.mark.parametrize(
    ("message", "quick"),
    [
        (b"[" + _MANY * 4_000 + b"1]", True),
        (b"[" + _MANY * 6_000 + b"1]", False),
        # In a string they are no values.
        (b'["' + _MANY * 100_000 + b'"]', True),
        (b'["\\"' + _MANY * 100_000 + b'\\\\"]', True),
        (b'["\\\\",' + _MANY * 6_000 + b'"\\\\"]', False),
        # A line break ends a string, which is no JSON then.
        (b'"\n' + _MANY * 6_000, False),
        (b'"\r' + _MANY * 6_000, False),
        (b"\\n" * 500_000, False),
        ("é".encode() * 1_500_000, False),
        (b"a" * 4_000_000, True),
    ],
    ids=range(10),
)
def test_expensive_messages(message: bytes, quick: bool) -> None:
    assert decodes_quickly(message) is quick


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r", b"\r\n\n"])
def test_events_count_for_themselves(end: bytes) -> None:
    for split in range(len(end) + 1):
        pieces = [_PIECE + end[:split], end[split:]] * 10
        assert _refused_after(pieces, is_event_stream=True) is None
        assert _refused_after(pieces, is_event_stream=False) is not None


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r", b"\n:\n", b"\n\\\\\n", b'\n""\n'])
def test_one_event_counts_as_one(end: bytes) -> None:
    for split in range(len(end) + 1):
        pieces = [_PIECE + end[:split], end[split:]] * 10
        assert _refused_after(pieces, is_event_stream=True) is not None


def test_a_cut_leaves_no_part_of_a_secret() -> None:
    """Redacted secrets are shorter, so that what was behind the cut comes before it."""
    secret = "s" * 9_000

    def redact(text: str) -> str:
        return text.replace(secret, "*")

    for length in range(50_000, 60_000, 1_500):
        text = "a" * 500 + ("b" + secret) * 6 + "\x07" * (length % 7) + secret * 100
        found = clean_start(text[:length] + secret * 10, 1_000, redact)
        assert "s" not in found
    assert clean_start("a" * 100_000, 1_000, redact) == "a" * 1_000
    assert clean_start("a\x7fb" * 10, 5, lambda text: text) == "ababa"

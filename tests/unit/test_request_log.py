"""Lines of requests on their way to a pipe that several processes write to."""

from quarterdeck.http.request_log import _pieces


def test_pieces_end_with_a_line_and_are_no_longer_than_a_pipe_takes_at_once() -> None:
    lines = [b"x" * (50 + 7 * number % 600) for number in range(200)]
    pieces = list(_pieces(lines))
    assert b"".join(pieces) == b"".join(line + b"\n" for line in lines)
    assert all(piece.endswith(b"\n") and len(piece) <= 4096 for piece in pieces)
    assert len(pieces) < len(lines) / 4, "together as far as they go"

"""Lines of requests on their way to a pipe that several processes write to."""

import asyncio
import json
import logging

import pytest

from quarterdeck.core.logging import log
from quarterdeck.http.request_log import RequestLog, _pieces


@pytest.fixture(autouse=True)
def at_the_usual_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger=log.name)


def test_pieces_end_with_a_line_and_are_no_longer_than_a_pipe_takes_at_once() -> None:
    lines = [b"x" * (50 + 7 * number % 600) for number in range(200)]
    pieces = list(_pieces(lines))
    assert b"".join(pieces) == b"".join(line + b"\n" for line in lines)
    assert all(piece.endswith(b"\n") and len(piece) <= 4096 for piece in pieces)
    assert len(pieces) < len(lines) / 4, "together as far as they go"


async def test_what_has_not_been_written_yet_is_written_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    requests = RequestLog()
    for number in range(3):
        requests.add(request_id=f"r{number}", method="GET", path="/healthz", status=200, seconds=0.001)
    assert capsys.readouterr().err == "", "nobody waits for a line"
    requests.write()
    assert [json.loads(line)["request_id"] for line in capsys.readouterr().err.splitlines()] == ["r0", "r1", "r2"]


async def test_lines_are_written_by_themselves(capsys: pytest.CaptureFixture[str]) -> None:
    requests = RequestLog()
    written = ""
    requests.add(request_id="r", method="GET", path="/healthz", status=200, seconds=0.001)
    for _ in range(500):
        await asyncio.sleep(0.01)
        if written := capsys.readouterr().err:
            break
    assert json.loads(written)["path"] == "/healthz"

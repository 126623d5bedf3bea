"""A session with files, for screenshots: attachments, commands in the sandbox, an edit."""

import json
import struct
import zlib
from collections.abc import Callable
from typing import Any

from tests.workers import at_rest
from tests.world import World

_TESTS = r"""printf '\033[1mRunning 4 tests\033[0m\n'
printf '\033[32m✓ totals by month\n✓ empty file\033[0m\n'
printf '\033[31m✗ rounds half up\033[0m: expected \033[32m2.68\033[0m, found \033[31m2.67\033[0m\n'
printf '\033[32m✓ unknown currency\033[0m\n\n\033[41;97m FAIL \033[0m 1 of 4 tests failed\n'
exit 1"""
_TOTALS = '''"""Totals of the orders, by month."""

from decimal import ROUND_HALF_UP, Decimal


def rounded(amount: Decimal) -> Decimal:
    return round(amount, 2)
'''
_CALLS: list[tuple[str, dict[str, str]]] = [
    ("write_file", {"path": "src/totals.py", "content": _TOTALS}),
    ("write_file", {"path": "README.md", "content": "# Totals\n\nSums of the orders, by month.\n"}),
    ("write_file", {"path": "tests/test_totals.py", "content": "from totals import rounded\n"}),
    ("write_file", {"path": "tests/run.sh", "content": _TESTS}),
    ("bash", {"command": "mkdir -p build && seq 400 > build/report.csv && ln -s src/totals.py latest && echo Done"}),
]
_FIX: list[tuple[str, dict[str, str]]] = [
    (
        "edit_file",
        {
            "path": "src/totals.py",
            "old": "    return round(amount, 2)",
            "new": '    return amount.quantize(Decimal("0.01"), rounding=ROUND_HALF_UP)',
        },
    ),
    ("bash", {"command": "bash tests/run.sh"}),
]


async def add_files_session(world: World) -> str:
    """Needs a worker with a sandbox and the data folder of the API. Returns the id of the session."""
    answer = await world.post("/v1/sessions", {"title": "Totals of the orders", "sandbox": {}})
    assert answer.status_code == 201, answer.text
    session_id: str = answer.json()["id"]
    await _run(world, session_id, _lines("Set up the project.", _CALLS), [])
    chart = await _upload(world, "chart.png", "image/png", _chart())
    orders = await _upload(world, "orders.csv", "text/csv", b"month,total\n2026-01,2.675\n" * 400)
    await _run(world, session_id, _lines("Round half up, please. The orders are attached.", _FIX), [chart, orders])
    return session_id


def _lines(text: str, calls: list[tuple[str, dict[str, str]]]) -> str:
    return "\n".join([text, *(f"call: {name} {json.dumps(arguments)}" for name, arguments in calls)])


async def _run(world: World, session_id: str, text: str, attachments: list[str]) -> None:
    body: dict[str, Any] = {"type": "input", "text": text, "attachments": attachments}
    answer = await world.post(f"/v1/sessions/{session_id}/events", body)
    assert answer.status_code == 200, answer.text
    await at_rest(world, session_id)


async def _upload(world: World, name: str, media_type: str, content: bytes) -> str:
    headers = {**world.headers(), "Content-Type": media_type}
    answer = await world.http.post(f"/v1/files?name={name}", headers=headers, content=content)
    assert answer.status_code == 201, answer.text
    file_id: str = answer.json()["id"]
    return file_id


def _chart() -> bytes:
    heights = (20, 34, 28, 44, 52)

    def colour(x: int, y: int) -> tuple[int, int, int]:
        is_bar = x % 13 > 2 and 64 - y < heights[min(x // 13, 4)] + 6
        return (11, 93, 122) if is_bar else (228, 240, 244)

    return png(64, 64, colour)


def png(width: int, height: int, colour: Callable[[int, int], tuple[int, int, int]]) -> bytes:
    """`colour(x, y)`: red, green and blue."""
    rows = b"".join(b"\0" + b"".join(bytes(colour(x, y)) for x in range(width)) for y in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

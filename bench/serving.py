"""What the API does without any worker: how many inputs it takes, and how soon a reader sees them.

Throughput is given in shares of `/healthz` on the same server, in turns with it: the machine's mood cancels out.
"""

import asyncio
from collections.abc import Sequence
from statistics import median
from time import perf_counter

from bench.figures import Figure, Measured, spread
from bench.stage import Advance, Stage
from bench.wire import Wire, request

CONNECTIONS = 64
ROUNDS = 5
ROUND_SECONDS = 0.6
READ_ALONG_SAMPLES = 200
_KEYS = 20
_TEXT = "Please look at the release notes and tell me what is missing."


async def throughput(stage: Stage, advance: Advance) -> Measured:
    """The first input of each session starts a run; as nobody drives it, all later ones steer."""
    async with stage.caller() as caller:
        await caller.new_keys(_KEYS - 1)
        sessions = await caller.new_sessions(CONNECTIONS + 1)
    submits = [stage.submission(session_id, _TEXT) for session_id in sessions]
    health = request("GET", "/healthz", stage.key)
    keys = request("GET", "/v1/api-keys", stage.key, Service_Workspace=str(stage.workspace_id))
    await _load(stage.port, submits[1:], ROUND_SECONDS)
    found: dict[str, list[float]] = {"healthz": [], "submit": [], "keys": [], "lone": []}
    lone_ms: list[float] = []
    for _ in range(ROUNDS):
        found["healthz"].append(_rate(await _load(stage.port, [health] * CONNECTIONS, ROUND_SECONDS)))
        found["submit"].append(_rate(await _load(stage.port, submits[1:], ROUND_SECONDS)))
        found["keys"].append(_rate(await _load(stage.port, [keys] * CONNECTIONS, ROUND_SECONDS)))
        alone_ms = await _load(stage.port, submits[:1], ROUND_SECONDS)
        found["lone"].append(_rate(alone_ms))
        lone_ms += alone_ms
        advance()
    figures = [
        Figure(f"submit, {CONNECTIONS} connections", median(found["submit"]), "/s"),
        Figure("  … for each /healthz", _ratio(found["submit"], found["healthz"]), "×"),
        Figure("  … for each on one connection", _ratio(found["submit"], found["lone"]), "×"),
        Figure(f"list {_KEYS} keys, {CONNECTIONS} connections", median(found["keys"]), "/s"),
        Figure("  … for each /healthz", _ratio(found["keys"], found["healthz"]), "×"),
        Figure(f"/healthz, {CONNECTIONS} connections", median(found["healthz"]), "/s"),
        *spread("lone submit", lone_ms, tail=99),
    ]
    return Measured(figures, {"lone submit": lone_ms})


async def reading_along(stage: Stage, advance: Advance) -> Measured:
    """From the first byte of an input sent to its event in an open stream of the same server."""
    seen_ms: list[float] = []
    async with stage.caller() as caller:
        (session_id,) = await caller.new_sessions(1)
        reader, writer = await asyncio.open_connection("127.0.0.1", stage.port)
        path = f"/v1/sessions/{session_id}/events?after=0"
        writer.write(request("GET", path, stage.key, Accept="text/event-stream"))
        await reader.readuntil(b"\r\n\r\n")
        for number in range(READ_ALONG_SAMPLES):
            began = perf_counter()
            submitting = asyncio.create_task(caller.submit(session_id, f"{_TEXT} {number}"))
            while not (await reader.readline()).startswith(b"id:"):
                pass
            seen_ms.append((perf_counter() - began) * 1000)
            await submitting
            # Longer than the pause between two hints: a lone input, not the second of two.
            await asyncio.sleep(0.015)
            advance()
        writer.close()
    return Measured(spread("submit → seen in a stream", seen_ms), {"submit → seen in a stream": seen_ms})


async def _load(port: int, requests: Sequence[bytes], seconds: float) -> list[float]:
    """Each request over and over on a connection of its own; how long each took, in ms."""
    wires = [await Wire.connect(port) for _ in requests]
    until = perf_counter() + seconds
    took_ms: list[float] = []

    async def repeat(wire: Wire, request: bytes) -> None:
        began = perf_counter()
        while began < until:
            answer = await wire.ask(request)
            assert answer.status == 200, answer.body
            ended = perf_counter()
            took_ms.append((ended - began) * 1000)
            began = ended

    await asyncio.gather(*map(repeat, wires, requests))
    for wire in wires:
        wire.close()
    return took_ms


def _rate(took_ms: Sequence[float]) -> float:
    return len(took_ms) / ROUND_SECONDS


def _ratio(rates: Sequence[float], others: Sequence[float]) -> float:
    """Round by round, so that both had the same weather."""
    return median(rate / other for rate, other in zip(rates, others, strict=True))

"""How many runs that stream to a reader each one worker carries, before the chunks take too long to their readers."""

from bench.case import BenchError, Case, Round, Taken
from bench.server import Server
from bench.streaming import p95, stream, with_models

MAX_MS = 250
_FIRST = 10
_GROWTH = 1.5
_MOST = 1_000


async def us(server: Server, one: Round) -> Taken:
    carried, notes = 0, dict[str, float]()
    runs = _FIRST
    while runs <= _MOST:
        try:
            window = await stream(server, runs, one.seconds, read=True)
        except BenchError:
            # Too many chunks were still on their way.
            break
        took_ms = p95(window.way_ms)
        notes[f"p95 with {runs} runs, ms"] = took_ms
        if took_ms > MAX_MS:
            break
        carried, runs = runs, int(runs * _GROWTH)
        if one.small:
            break
    return Taken(carried, notes=notes)


CASE = Case(
    title=f"runs streaming to a reader each in one worker, p95 of a chunk's way at most {MAX_MS} ms",
    unit="runs",
    stage=with_models,
    us=us,
    rounds=1,
    seconds=5,
    warm_up=False,
)

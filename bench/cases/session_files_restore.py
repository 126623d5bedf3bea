"""An empty command of a worker that has no folder of the session: its files are read from the store first."""

from statistics import median

from bench.case import Case, Round, Taken
from bench.sandboxes import call_ms, forgetful_worker, session_with_files
from bench.server import Server

_FILES = 1_000
_SAMPLES = 5


async def us(server: Server, one: Round) -> Taken:
    files = one.rows(_FILES)
    async with server.caller() as caller:
        session_id = await session_with_files(caller, files)
        times_ms = [await call_ms(caller, session_id, f"test -s 0/{files // 2}") for _ in range(_SAMPLES)]
    return Taken(median(times_ms), times_ms)


CASE = Case(
    title="`bash` after restoring 1,000 files of 2 KiB, median",
    unit="ms",
    stage=forgetful_worker,
    us=us,
    rounds=3,
)

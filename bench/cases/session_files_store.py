"""A command that changes one file of a thousand, against the same in a session with ten files."""

from statistics import median

from bench.case import Case, Round, Taken, at_most
from bench.sandboxes import call_ms, sandboxed_worker, session_with_files
from bench.server import Server

_SAMPLES = 20


async def _change_one(server: Server, one: Round, files: int) -> Taken:
    async with server.caller() as caller:
        session_id = await session_with_files(caller, files)
        # The files that were just written are read once more by the next call.
        await call_ms(caller, session_id, "sleep 0.1; echo > 0/1")
        changes = [f"echo {one.number} {number} > 0/1" for number in range(one.rows(_SAMPLES))]
        times_ms = [await call_ms(caller, session_id, change) for change in changes]
    return Taken(median(times_ms), times_ms)


async def us(server: Server, one: Round) -> Taken:
    return await _change_one(server, one, one.rows(1_000))


async def ceiling(server: Server, one: Round) -> Taken:
    return await _change_one(server, one, 10)


CASE = Case(
    title="`bash` that changes one of 1,000 files, median",
    unit="ms",
    against="one of 10 files",
    reach=at_most(2),
    stage=sandboxed_worker,
    us=us,
    ceiling=ceiling,
    rounds=3,
)

"""Everybody watches one session: an entry goes out 500 times."""

from bench.case import Case, Round, Taken, at_most
from bench.readers import READERS, append_to_reader
from bench.server import Server
from bench.stages import empty


async def us(server: Server, one: Round) -> Taken:
    return await append_to_reader(server, readers=one.rows(READERS), sessions=1, seconds=one.seconds)


CASE = Case(
    title=f"append → SSE reader, {READERS} readers of one session, p99",
    unit="ms",
    reach=at_most(100),
    stage=empty,
    us=us,
    rounds=3,
    seconds=4,
)

"""500 readers of 50 sessions: as many connections to watch over, with less to send."""

from bench.case import Case, Round, Taken, at_most
from bench.readers import READERS, append_to_reader
from bench.server import Server
from bench.stages import empty


async def us(server: Server, one: Round) -> Taken:
    return await append_to_reader(server, readers=one.rows(READERS), sessions=50, seconds=one.seconds)


CASE = Case(
    title=f"append → SSE reader, {READERS} readers of 50 sessions, p99",
    unit="ms",
    reach=at_most(100),
    stage=empty,
    us=us,
    rounds=3,
    seconds=4,
)

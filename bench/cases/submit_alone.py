"""One caller who waits for each answer: what coalescing must not cost."""

from statistics import median

from bench.case import Case, Round, Taken, at_most
from bench.server import Server
from bench.stages import STEERED, steered
from bench.submitting import by_pgbench, over_http


async def us(server: Server, one: Round) -> Taken:
    report = (await over_http(server, STEERED, one.seconds, connections=1)).report
    return Taken(report.median_us / 1000, notes={"p99, ms": report.p99_us / 1000})


async def ceiling(server: Server, one: Round) -> Taken:
    report = await by_pgbench(server, STEERED, one.seconds, clients=1, logged=True)
    return Taken(median(report.took_ms))


CASE = Case(
    title="submit, 1 connection, median",
    unit="ms",
    against="pgbench, 1 client, median",
    reach=at_most(5),
    stage=steered,
    us=us,
    ceiling=ceiling,
    smoke=True,
)

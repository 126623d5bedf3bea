"""Inputs that start a run each, with its job. A session has one run at a time: every round has sessions of its own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec import Struct

from bench.case import BenchError, Case, Ground, Round, Taken, at_least
from bench.server import Server, serving
from bench.submitting import CONNECTIONS, Sessions, add_sessions, by_pgbench, over_http

# More than either side gets through.
_PER_SECOND = 15_000
_COUNT = "SELECT count(*), (SELECT count(*) FROM run_jobs) FROM runs"


class Fresh(Struct):
    server: Server
    next_number: int = 1
    runs: int = 0

    async def take(self, count: int) -> Sessions:
        sessions = Sessions(count, self.next_number, in_turn=True)
        await add_sessions(self.server, sessions)
        self.next_number += count
        await self.server.settle()
        return sessions

    async def check_started(self, reported: int) -> None:
        """Each input a run and each run a job, but for answers that nobody waited for."""
        ((runs, jobs),) = await self.server.statement(_COUNT)
        if runs != jobs or not reported <= runs - self.runs <= reported + CONNECTIONS:
            raise BenchError(f"{reported} inputs have started {runs - self.runs} runs, and there are {jobs} jobs")
        self.runs = runs


@asynccontextmanager
async def fresh(ground: Ground) -> AsyncIterator[Fresh]:
    async with serving(ground) as server:
        yield Fresh(server)


async def us(stage: Fresh, one: Round) -> Taken:
    sessions = await stage.take(_PER_SECOND * one.seconds)
    load = await over_http(stage.server, sessions, one.seconds)
    await stage.check_started(load.report.requests)
    return load.taken


async def ceiling(stage: Fresh, one: Round) -> Taken:
    sessions = await stage.take(_PER_SECOND * one.seconds)
    report = await by_pgbench(stage.server, sessions, one.seconds)
    await stage.check_started(report.transactions)
    return Taken(report.per_second)


CASE = Case(
    title="submit, 64 connections, starting runs",
    unit="/s",
    against="pgbench, same statement, 16 clients",
    reach=at_least(0.8),
    stage=fresh,
    us=us,
    ceiling=ceiling,
)

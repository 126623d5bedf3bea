"""`make availability`: outages of the database and rolling restarts under load, measured against what is promised."""

import argparse
import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import msgspec
from bench.report import table_of, write_json
from rich.console import Console
from rich.markup import escape

from tests.fault.postgres import Postgres, own_postgres
from tests.uptime import outage
from tests.uptime.fleet import sailing
from tests.uptime.outage import How, Outage
from tests.uptime.rolling import Rolled, Served, behind_a_balancer
from tests.world import World

APIS, WORKERS = 2, 3

Measured = Outage | Rolled


@asynccontextmanager
async def working_world(database_url: str, url: str) -> AsyncIterator[World]:
    async with httpx.AsyncClient(base_url=url, timeout=30) as http:
        yield await World.create(database_url, http)


async def outages(postgres: Postgres, folder: Path, hows: list[How], seconds: float, console: Console) -> list[Outage]:
    found: list[Outage] = []
    with sailing(postgres.url, folder, apis=APIS, workers=WORKERS) as fleet:
        for how in hows:
            console.print(f"The database is {how} for {seconds:g} s under {APIS} API and {WORKERS} worker processes …")
            async with working_world(postgres.url, fleet.apis[0].url) as world:
                found.append(await outage.measure(postgres, fleet, world, how, seconds))
    return found


async def rolling_restarts(database_url: str, folder: Path, rounds: int, console: Console) -> list[Rolled]:
    console.print(f"Every process is restarted {rounds} times, first of `qd serve`, then behind a balancer …")
    served = Served(database_url, folder, SERVER_PROCESSES=APIS, WORKER_PROCESSES=WORKERS)
    try:
        served.start()
        async with working_world(database_url, served.url) as world:
            first = await served.measure(world, rounds=rounds)
    finally:
        served.process.stop()
    with sailing(database_url, folder, apis=APIS, workers=WORKERS) as fleet:
        async with working_world(database_url, fleet.apis[0].url) as world:
            return [first, await behind_a_balancer(fleet, world, rounds=rounds)]


async def measure(postgres: Postgres, folder: Path, asked: argparse.Namespace, console: Console) -> list[Measured]:
    found: list[Measured] = []
    if not asked.rolling:
        found += await outages(postgres, folder, asked.outage or list(How), asked.seconds, console)
    if not asked.outage:
        found += await rolling_restarts(postgres.url, folder, asked.rounds, console)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="make availability", description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0, help="of each outage")
    parser.add_argument("--outage", type=How, choices=list(How), action="append", help="of this kind only")
    parser.add_argument("--rounds", type=int, default=3, help="of restarts of every process")
    parser.add_argument("--rolling", action="store_true", help="restarts only")
    asked = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 120)
    began, load_before = time.monotonic(), os.getloadavg()[0]
    with own_postgres("availability") as postgres:
        found = asyncio.run(measure(postgres, postgres.cluster.data_dir, asked, console))
    figures = [figure for one in found for figure in one.figures()]
    console.print(table_of("Quarterdeck availability", figures))
    for one in found:
        for failure in one.failures if isinstance(one, Rolled) else ():
            console.print(f"[red]{escape(failure)}")
    measured = [{"kind": type(one).__name__, **msgspec.to_builtins(one)} for one in found]
    path = write_json("availability", figures, time.monotonic() - began, load_before, measured=measured)
    console.print(f"Written to {path}")
    sys.exit(not all(figure.met is not False for figure in figures))


if __name__ == "__main__":
    main()

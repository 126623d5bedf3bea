"""bench/whole_runs.py stops workers between two transactions."""

import asyncio
import random
import subprocess
import sys
from typing import Any

import psycopg
from bench.whole_runs import Service, stopped
from psycopg.conninfo import make_conninfo

from tests.workers import eventually

WORKER = """
import sys, time, psycopg
with psycopg.connect(sys.argv[1]) as connection:
    while True:
        connection.execute("SELECT pg_sleep(0.02)")
        time.sleep(0.1)
        connection.commit()
        time.sleep(0.1)
"""
STATE = "SELECT state FROM pg_stat_activity WHERE application_name = 'stopped' AND datname = current_database()"


async def test_no_transaction_is_open_meanwhile(database_url: str) -> None:
    server: Any = None
    process = subprocess.Popen([sys.executable, "-c", WORKER, make_conninfo(database_url, application_name="stopped")])
    try:
        async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
            service = Service(server, [process.pid], connection)

            async def connected() -> bool:
                return (await connection.execute(STATE)).rowcount == 1

            await eventually(connected)
            for _ in range(10):
                async with stopped(service):
                    assert await service.row(STATE) == ("idle",)
                await asyncio.sleep(random.uniform(0, 0.2))
    finally:
        process.kill()
        process.wait()

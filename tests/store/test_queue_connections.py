"""Connections of a worker to the job queue that PostgreSQL has ended."""

import psycopg

from quarterdeck.core.settings import DatabaseSettings
from quarterdeck.worker.queue_store import make_connector
from tests.world import LOGIN, app_url

# Only a failure takes this long.
WAIT_SECONDS = 20.0
CONNECTIONS = 4
END = """
SELECT pg_terminate_backend(pid, 20000) FROM pg_stat_activity WHERE datname = current_database() AND usename = %s
"""


async def test_connections_that_were_ended_while_idle_are_replaced(database_url: str) -> None:
    settings = DatabaseSettings(url=app_url(database_url), pool_wait_seconds=WAIT_SECONDS)
    connector = make_connector(settings, CONNECTIONS)
    await connector.open_async()
    try:
        with psycopg.connect(database_url, autocommit=True) as owner:
            assert owner.execute(END, (LOGIN,)).fetchall() == [(True,)] * CONNECTIONS
        for _ in range(CONNECTIONS):
            assert await connector.execute_query_one_async("SELECT 1 AS one") == {"one": 1}
    finally:
        await connector.close_async()

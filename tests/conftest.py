"""Real parts for every test: PostgreSQL, a database cloned from a migrated template, a served API."""

import os
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from functools import cache
from pathlib import Path
from unittest.mock import patch

import httpx
import psycopg
import pytest
from hypothesis import HealthCheck, settings
from psycopg.conninfo import make_conninfo

from quarterdeck.server import embedded_postgres
from tests.fuzzing import cases
from tests.world import PATIENT, Server, World, clone_database, drop_database, migrate_for_tests, serving

# A machine that does much else at the same time is slow, and that is no fault of what is tested.
settings.register_profile(
    "unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=cases(100)
)
settings.load_profile("unhurried")

# Each process of a parallel run has its own.
TEMPLATE = f"quarterdeck_template_{os.environ.get('PYTEST_XDIST_WORKER', 'only')}"


def pytest_configure() -> None:
    # A shell that starts this in the background lets it ignore Ctrl-C, and so would do every process that tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Every client would read the certificates of the world anew, which takes longer than most tests: read them once.
    patch("httpx._transports.default.create_ssl_context", cache(httpx.create_ssl_context)).start()


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The server that the whole suite uses: embedded, or QUARTERDECK_TEST_DATABASE_URL."""
    given = os.environ.get("QUARTERDECK_TEST_DATABASE_URL")
    if given:
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="qd-test-") as folder, embedded_postgres.running(Path(folder)) as url:
        yield url


@pytest.fixture(scope="session")
def template(postgres_url: str) -> Iterator[str]:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {TEMPLATE}")
        connection.execute(f"CREATE DATABASE {TEMPLATE}")
    migrate_for_tests(make_conninfo(postgres_url, dbname=TEMPLATE))
    yield TEMPLATE
    drop_database(postgres_url, make_conninfo(postgres_url, dbname=TEMPLATE))


@pytest.fixture
def database_url(postgres_url: str, template: str) -> Iterator[str]:
    """A database of the test's own, by its owner's address: a rolled-back transaction would hide what happens between
    connections."""
    url = clone_database(postgres_url, template)
    yield url
    drop_database(postgres_url, url)


@pytest.fixture(scope="session")
def server(postgres_url: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """`qd api`, as it is run for real. Shared: each test has a workspace of its own on it."""
    url = clone_database(postgres_url, template)
    # Generated requests make many webhooks in one workspace.
    with serving(url, tmp_path_factory.mktemp("data"), WEBHOOK_PER_WORKSPACE=10_000, **PATIENT) as server:
        yield server
    drop_database(postgres_url, url)


@pytest.fixture
async def world(server: Server) -> AsyncIterator[World]:
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
        yield await World.create(server.database_url, http)

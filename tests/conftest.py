"""Fixtures for all tests: PostgreSQL, a database cloned from a migrated template, a served API."""

import os
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from functools import cache
from unittest.mock import patch
from uuid import uuid4

import httpx
import psycopg
import pytest
from hypothesis import HealthCheck, settings
from psycopg.conninfo import make_conninfo

from tests import fork_server
from tests.fault.postgres import running_postgres
from tests.fuzzing import cases
from tests.owner_connections import close_owner_connections
from tests.pgbouncer import behind_pgbouncer
from tests.world import (
    PATIENT,
    Server,
    World,
    clone_database,
    create_login,
    drop_database,
    migrate_for_tests,
    serving,
)

# No deadlines: the machine may be busy with other work.
settings.register_profile(
    "no_deadline", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=cases(100)
)
settings.load_profile("no_deadline")

# One server for all processes of a parallel run. Tests of durability start their own (`own_postgres`), which writes to
# the disk. Some tests stop dozens of processes in the middle of a write, beside the servers that all tests share.
SHARED_POSTGRES = {"max_connections": 800, "fsync": "off", "full_page_writes": "off", "autovacuum_naptime": "10min"}
TEMPLATE = "quarterdeck_template"


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if os.geteuid() == 0 and config.option.basetemp is None:
        # Every start of pytest closes /tmp/pytest-of-root to other users. The embedded PostgreSQL of a test in another
        # run is such a user, and could no longer reach its files. --basetemp keeps the files of the tests.
        config.option.basetemp = tempfile.mkdtemp(prefix="qd-pytest-")
        config.add_cleanup(lambda: shutil.rmtree(config.option.basetemp, ignore_errors=True))
    if getattr(config.option, "numprocesses", None) and "QUARTERDECK_TEST_DATABASE_URL" not in os.environ:
        # The processes of the run inherit the variable.
        stack = ExitStack()
        config.add_cleanup(stack.close)
        os.environ["QUARTERDECK_TEST_DATABASE_URL"] = stack.enter_context(
            running_postgres("test", **SHARED_POSTGRES)
        ).url
        fork_server.start()
    # A shell ignores SIGINT in background jobs, and every process that the tests start would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Each httpx client would load the CA certificates again, which takes longer than most tests.
    patch("httpx._transports.default.create_ssl_context", cache(httpx.create_ssl_context)).start()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A parallel run ends with its last test, so the slowest ones must not be the last to begin. Each process gets a
    part of the list in this order, and begins with some of them. After -m has removed others."""
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    slowest = [item for item in items if item.get_closest_marker("slowest")]
    others = [item for item in items if not item.get_closest_marker("slowest")]
    total = len(items)
    items.clear()
    for number in range(count):
        own = slowest[number::count]
        # As --dist worksteal divides the list: if the parts cannot be equal, the later ones are longer.
        size = (total - len(items)) // (count - number)
        room = max(0, size - len(own))
        items += own + others[:room]
        del others[:room]


def pytest_unconfigure() -> None:
    close_owner_connections()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for each reason for which tests were skipped: it says what to install."""
    reasons = Counter(report.longrepr[2] for report in terminalreporter.stats.get("skipped", []))
    for reason, count in reasons.items():
        terminalreporter.write_line(f"{count} skipped: {reason.removeprefix('Skipped: ')}", yellow=True)


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """One server for all tests: QUARTERDECK_TEST_DATABASE_URL, which a parallel run sets itself, or this process's own.
    With QUARTERDECK_TEST_PGBOUNCER the API and the workers of the tests reach it through PgBouncer."""
    with ExitStack() as stack:
        url = os.environ.get("QUARTERDECK_TEST_DATABASE_URL")
        if not url:
            url = stack.enter_context(running_postgres("test", **SHARED_POSTGRES)).url
        if os.environ.get("QUARTERDECK_TEST_PGBOUNCER"):
            stack.enter_context(behind_pgbouncer(url))
        yield url


@pytest.fixture(scope="session")
def template(postgres_url: str) -> str:
    """Made by the first process that needs it."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(1)")
        if not connection.execute("SELECT FROM pg_database WHERE datname = %s", (TEMPLATE,)).fetchall():
            draft = f"{TEMPLATE}_draft"
            connection.execute(f"DROP DATABASE IF EXISTS {draft}")
            connection.execute(f"CREATE DATABASE {draft}")
            migrate_for_tests(make_conninfo(postgres_url, dbname=draft))
            connection.execute(f"ALTER DATABASE {draft} RENAME TO {TEMPLATE}")
        create_login(postgres_url)
    return TEMPLATE


@pytest.fixture
def empty_url(postgres_url: str) -> Iterator[str]:
    """A database without the schema."""
    name = f"qd_{uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    url = make_conninfo(postgres_url, dbname=name)
    yield url
    drop_database(postgres_url, url)


@pytest.fixture
def database_url(postgres_url: str, template: str) -> Iterator[str]:
    """An empty migrated database for one test; the URL is its owner's. A rolled-back transaction instead would hide
    effects between connections."""
    url = clone_database(postgres_url, template)
    yield url
    drop_database(postgres_url, url)


@pytest.fixture(scope="session")
def untouched_database_url(postgres_url: str, template: str) -> Iterator[str]:
    """An empty migrated database for tests that leave it as it is."""
    url = clone_database(postgres_url, template)
    yield url
    drop_database(postgres_url, url)


@pytest.fixture(scope="session")
def server(postgres_url: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """`qd api` as a real process, shared by all tests. Each test has its own workspace."""
    url = clone_database(postgres_url, template)
    # Generated requests create many webhooks and MCP servers in one workspace.
    many = {"WEBHOOK_PER_WORKSPACE": 10_000, "MCP_PER_WORKSPACE": 10_000}
    with serving(url, tmp_path_factory.mktemp("data"), **many, **PATIENT) as server:
        yield server
    drop_database(postgres_url, url)


@pytest.fixture
async def world(server: Server) -> AsyncIterator[World]:
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
        yield await World.create(server.database_url, http)

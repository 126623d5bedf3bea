"""The role of the service and a connection of its owner, for several test files."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from quarterdeck.core.settings import DatabaseSettings
from quarterdeck.db.database import connection_options
from quarterdeck.db.migrate import migrate
from tests.world import AS_OWNER

ROLE = DatabaseSettings().role
OPTIONS = connection_options(DatabaseSettings())
OwnConnection = psycopg.Connection[tuple[object, ...]]


@contextmanager
def connected(url: str, options: str) -> Iterator[OwnConnection]:
    with psycopg.connect(url, autocommit=True, options=options) as connection:
        yield connection


@pytest.fixture
def owner(database_url: str) -> Iterator[OwnConnection]:
    # What a database lets everybody do is not copied with it from the template.
    migrate(database_url)
    with connected(database_url, AS_OWNER) as connection:
        yield connection

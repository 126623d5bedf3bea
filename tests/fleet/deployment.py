"""What the load and its checks need to know about the processes under test: where they are, how to sign in, how to read
the database and the store of contents."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from tests.fleet.process import ApiProcess, Process
from tests.world import AS_OWNER


class Deployment(ABC):
    def __init__(self, database_url: str) -> None:
        # The owner's. It must work whatever happens to the processes under test.
        self.database_url = database_url
        self.apis: list[ApiProcess] = []
        self.workers: list[Process] = []
        self.workspace_id: UUID
        self.key: str

    @abstractmethod
    def stored_content(self, sha256: str, generation: UUID) -> bytes | None:
        """A content of the blob store. None if it is missing."""

    @property
    def processes(self) -> list[Process]:
        return [*self.apis, *self.workers]

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[AsyncConnection[tuple[Any, ...]]]:
        """Closed in any case. `async with` a connection of psycopg commits first, and a task that is cancelled during
        this commit leaves the connection open."""
        connection = await AsyncConnection.connect(
            self.database_url, autocommit=True, options=AS_OWNER, connect_timeout=5
        )
        try:
            yield connection
        finally:
            await connection.close()

    async def fetch(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        async with self.connect() as connection:
            return await (await connection.execute(query.encode(), values)).fetchall()

"""The load together with the auditor that checks its results."""

import asyncio
from types import TracebackType
from typing import Self

from tests.fleet.auditor import Auditor
from tests.fleet.deployment import Deployment
from tests.fleet.history import History
from tests.fleet.load import CLIENTS, SHORT_SESSIONS, Load


class AuditedLoad:
    def __init__(
        self,
        fleet: Deployment,
        history: History,
        seed: int,
        *,
        clients: int = CLIENTS,
        short_sessions: int = SHORT_SESSIONS,
        always_keyed: bool = False,
        audit_seconds: float = 1.0,
    ) -> None:
        """`audit_seconds` is the pause between two checks."""
        self.load = Load(fleet, history, seed, short_sessions=short_sessions, always_keyed=always_keyed)
        self.auditor = Auditor(fleet, self.load, history)
        # They run until `finish`, unless they fail.
        self.tasks: list[asyncio.Task[None]] = []
        self._clients = clients
        self._audit_seconds = audit_seconds

    async def __aenter__(self) -> Self:
        try:
            await self.load.prepare()
        except BaseException:
            await self.load.close()
            raise
        self.tasks = [
            asyncio.create_task(self.load.run(self._clients)),
            asyncio.create_task(self.auditor.run(self._audit_seconds)),
        ]
        return self

    async def finish(self) -> None:
        """End the load, wait until all sessions have settled, and check everything again."""
        working, auditing = self.tasks
        self.load.stopping = True
        await working
        if auditing.done():
            auditing.result()
        auditing.cancel()
        await asyncio.gather(auditing, return_exceptions=True)
        await self.auditor.settle()

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.load.close()

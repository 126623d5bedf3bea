"""Where skills are pushed: a server with some, warmed up by small pushes, and the bare server beside it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

from msgspec import Struct

from bench import archives
from bench.bare import bare
from bench.case import Ground
from bench.resources import resident_mib
from bench.server import Server, serving

_SKILLS = 64
_GZIP = "application/gzip"


class Pushing(Struct):
    server: Server
    bare_port: int
    skills: list[UUID]
    # Memory of the idle process, before it has seen anything large.
    idle_mib: float = 0.0
    pushed: int = 0

    @property
    def folder(self) -> Path:
        return self.server.folder

    def another(self, archive: bytes) -> bytes:
        """Like this one, and yet never pushed before."""
        self.pushed += 1
        return archives.restamped(archive, self.pushed)

    async def push(self, archive: bytes, skill: int = 0) -> None:
        async with self.server.caller() as caller:
            await caller.post(f"/v1/skills/{self.skills[skill]}/versions", self.another(archive), _GZIP)


@asynccontextmanager
async def pushing(ground: Ground) -> AsyncIterator[Pushing]:
    async with serving(ground) as server, server.caller() as caller, bare(server) as port:
        stage = Pushing(server, port, await caller.new_skills(ground.rows(_SKILLS)))
        small = archives.small()
        for number in range(len(stage.skills)):
            await stage.push(small, number)
        stage.idle_mib = resident_mib(server.process_id)
        yield stage

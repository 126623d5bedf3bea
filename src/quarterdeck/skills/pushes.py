"""What pushes ask of the database: who may, where the archive goes, and the version. The first two for all that come at
the same time, since they are the same for everybody; a version waits for its skill alone."""

from collections.abc import Sequence
from uuid import UUID

from quarterdeck.db.database import Connection, Database
from quarterdeck.db.together import Together
from quarterdeck.ids import new_id
from quarterdeck.skills import store
from quarterdeck.skills.model import NewVersion, Pushed, Pusher, TouchedBundle


class Pushes:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._pushers = Together(self._may_push)
        self._touched = Together(self._touch)

    async def may_push(self, pusher: Pusher) -> UUID | None:
        """Its key. None tells nothing: whoever may not has to be looked at by itself."""
        return await self._pushers.ask(pusher)

    async def touch(self, sha256: bytes, size: int) -> UUID:
        """The generation under which the archive is, or is to be, stored."""
        return await self._touched.ask(TouchedBundle(sha256, new_id(), size))

    async def push(self, new: NewVersion) -> Pushed:
        async def push(connection: Connection) -> Pushed:
            return await store.push(connection, new)

        return await self._database.statement(push, repeatable=new.idempotency_key is not None)

    async def _may_push(self, pushers: Sequence[Pusher]) -> list[UUID | None]:
        async def look(connection: Connection) -> list[UUID | None]:
            return await store.may_push(connection, pushers)

        return await self._database.read(look)

    async def _touch(self, touched: Sequence[TouchedBundle]) -> list[UUID]:
        async def touch(connection: Connection) -> list[UUID]:
            return await store.touch_bundles(connection, touched)

        return await self._database.statement(touch, repeatable=True)

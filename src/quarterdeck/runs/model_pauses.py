"""Models whose provider refuses requests for the moment.

All workers leave such a model alone together, and its runs wait without a slot. The decisions are made by the database:
db/functions/model_pauses.sql.
"""

from contextlib import suppress
from uuid import UUID

from msgspec import Struct

from quarterdeck.core.errors import ServiceError
from quarterdeck.core.settings import ModelSettings, RunSettings
from quarterdeck.db.database import Connection, Database
from quarterdeck.models.model import ProviderRefused

_PAUSE = "SELECT pause_model(%s, %s, %s, %s, %s, %s)"
_RESUME = "SELECT resume_model(%s)"
_READ = "SELECT reason, probe_run_id FROM model_pauses WHERE model = %s"
_RELEASE = "SELECT model, reason, probe_run_id FROM release_waiting_runs(%s, %s)"


class ModelPaused(Exception):
    """The run has to wait for its model. The text goes to the session's log."""

    def __init__(self, model: str, reason: str) -> None:
        super().__init__(f"Waiting for {model}. {reason}")
        self.model = model


class _Pause(Struct, frozen=True):
    reason: str
    # The run that tries whether requests are answered again.
    probe_run_id: UUID | None


class ModelPauses:
    """The pauses as one worker knows them. It may be a moment behind the database, and then makes a request too much or
    lets a run wait that need not."""

    def __init__(self, database: Database, model: ModelSettings, run: RunSettings) -> None:
        self._database = database
        self._model = model
        self._max_run_seconds = run.max_seconds
        self._pauses: dict[str, _Pause] = {}

    async def refresh(self) -> None:
        """Gives jobs to the runs that need not wait any longer. To be called again and again."""

        async def work(connection: Connection) -> dict[str, _Pause]:
            # A request that is silent for longer is given up.
            values = (self._model.stall_seconds, self._max_run_seconds)
            rows = await (await connection.execute(_RELEASE, values)).fetchall()
            return {model: _Pause(*pause) for model, *pause in rows}

        self._pauses = await self._database.transaction(work, repeatable=True)

    async def check(self, model: str, run_id: UUID) -> None:
        """Raises ModelPaused if the run must not ask this model now."""
        if model not in self._pauses:
            return

        async def work(connection: Connection) -> _Pause | None:
            row = await (await connection.execute(_READ, (model,))).fetchone()
            return None if row is None else _Pause(*row)

        # Read again: this may be the run that was just chosen to try, or the pause may be over.
        pause = await self._database.read(work)
        if pause is None:
            self._pauses.pop(model, None)
        elif pause.probe_run_id == run_id:
            self._pauses[model] = pause
        else:
            raise ModelPaused(model, pause.reason)

    async def refused(self, model: str, run_id: UUID, fault: ProviderRefused) -> ModelPaused:
        reason, settings = str(fault), self._model

        async def work(connection: Connection) -> None:
            await connection.execute(
                _PAUSE,
                (
                    model,
                    run_id,
                    reason,
                    fault.retry_after_seconds or 0.0,
                    settings.retry_base_seconds,
                    settings.retry_max_seconds,
                ),
            )

        await self._database.transaction(work, repeatable=True)
        self._pauses[model] = _Pause(reason, None)
        return ModelPaused(model, reason)

    async def answered(self, model: str, run_id: UUID) -> None:
        """Ends the pause if this run tried."""
        pause = self._pauses.get(model)
        if pause is None or pause.probe_run_id != run_id:
            return

        async def work(connection: Connection) -> None:
            await connection.execute(_RESUME, (model,))

        del self._pauses[model]
        # Not worth losing the answer: another run tries a little later.
        with suppress(ServiceError):
            await self._database.transaction(work, repeatable=True)

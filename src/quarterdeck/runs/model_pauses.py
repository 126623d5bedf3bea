"""Which model answers the next step of a run, and whether the run has to wait for it.

All workers leave a model alone together that refuses requests or fails, and keep to the limits of the operator. A run
that has to wait does so without a slot.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from uuid import UUID

from msgspec import Struct

from quarterdeck.core.errors import ServiceError
from quarterdeck.core.setting_types import ModelLimits
from quarterdeck.core.settings import ModelSettings, RunSettings
from quarterdeck.db.database import Database
from quarterdeck.models.model import ProviderRefused, TransientFailure
from quarterdeck.runs import model_pause_store as store
from quarterdeck.runs.lifecycle_store import RunKey
from quarterdeck.runs.model_pause_store import Pause

# Runs that wait need about as long to notice that the pause is over.
_MIN_ANNOUNCED_SECONDS = 1.0


class ModelPaused(Exception):
    """The run has to wait until one of its models is available. The text goes to the session's log."""

    def __init__(self, models: Sequence[str], reason: str) -> None:
        super().__init__(f"Waiting for {' or '.join(models)}. {reason}")
        self.models = list(models)


class ModelChoice(Struct, frozen=True):
    """The model that answers the next step of a run."""

    model: str
    # Whether it is asked once, because another model may answer if it fails.
    once: bool
    # Why models of the run are not available.
    reasons: Mapping[str, str] = {}


class ModelPauses:
    """The pauses as one worker knows them. It may be a moment behind the database, and then makes a request too much or
    lets a run wait that need not."""

    def __init__(self, database: Database, model: ModelSettings, run: RunSettings) -> None:
        self._database = database
        self._model = model
        self._limits = model.limits or ModelLimits()
        self._max_run_seconds = run.max_seconds
        self._pauses: dict[str, Pause] = {}
        self._announcing: set[asyncio.Task[None]] = set()

    async def refresh(self) -> None:
        """Gives jobs to the runs that need not wait any longer. To be called again and again."""
        # A request that is silent for longer than `stall_seconds` is given up.
        self._pauses = await self._database.transaction(
            store.release, self._model.stall_seconds, self._max_run_seconds, self._limits, repeatable=True
        )

    async def choose(self, models: Sequence[str], run_id: UUID) -> ModelChoice:
        """The first of the models that is available. If none is, but one was not refused, that one is asked: what
        its request failed with may be the fault of a single run, for which others must not wait. Raises ModelPaused if
        all are refused."""
        has_others = len(models) > 1
        if self._pauses.keys().isdisjoint(models):
            return ModelChoice(models[0], has_others)
        # Read again: this may be the run that was just chosen to try, or the pause may be over.
        pauses = await self._database.read(store.read, models)
        reasons = {model: pause.reason for model, pause in pauses.items()}
        for model in models:
            pause = pauses.get(model)
            if pause is None:
                self._pauses.pop(model, None)
            elif not await self._tries(model, run_id, pause):
                continue
            return ModelChoice(model, has_others, reasons)
        for model in models:
            if not pauses[model].refused:
                return ModelChoice(model, False, reasons)
        raise ModelPaused(models, reasons[models[0]])

    async def _tries(self, model: str, run_id: UUID, pause: Pause) -> bool:
        """Whether this run is the one that tries."""
        if pause.probe_run_id != run_id and not (
            # Repeated after an unknown outcome it may say no. Then another run tries later.
            pause.is_over
            and await self._database.transaction(
                store.try_model, model, run_id, self._model.stall_seconds, repeatable=True
            )
        ):
            return False
        self._pauses[model] = Pause(pause.reason, pause.refused, run_id)
        return True

    async def failed(self, model: str, run_id: UUID, fault: Exception) -> None:
        """All runs leave the model alone. `fault` is a refusal, or the run has other models."""
        reason, settings = str(fault), self._model
        is_refusal = isinstance(fault, ProviderRefused)
        asked_seconds = (fault.retry_after_seconds or 0.0) if isinstance(fault, TransientFailure) else 0.0
        base_seconds = settings.retry_base_seconds if is_refusal else settings.cool_down_seconds
        max_seconds = max(settings.retry_max_seconds, base_seconds)
        await self._database.transaction(
            store.pause, model, run_id, reason, is_refusal, asked_seconds, base_seconds, max_seconds, repeatable=True
        )
        self._pauses[model] = Pause(reason, is_refusal)

    def announced(self, model: str, seconds: float) -> None:
        """The provider has answered, and announced that it takes no more requests for this time."""
        if seconds < _MIN_ANNOUNCED_SECONDS:
            return
        seconds = min(seconds, self._model.retry_max_seconds)
        reason = f"The provider of {model} announced that its limit is reached for {seconds:.0f} seconds."
        self._pauses[model] = Pause(reason, True)
        task = asyncio.create_task(self._announce(model, reason, seconds))
        self._announcing.add(task)
        task.add_done_callback(self._announcing.discard)

    async def _announce(self, model: str, reason: str, seconds: float) -> None:
        # Otherwise the provider refuses the next request.
        with suppress(ServiceError):
            await self._database.transaction(store.announce, model, reason, seconds, repeatable=True)

    async def answered(self, model: str, run_id: UUID) -> None:
        """Ends the pause if this run tried, or if nobody waits for its end."""
        pause = self._pauses.get(model)
        if pause is None or (pause.refused and pause.probe_run_id != run_id):
            return
        del self._pauses[model]
        # Not worth losing the answer: another run tries a little later.
        with suppress(ServiceError):
            await self._database.transaction(store.resume, model, run_id, repeatable=True)

    def is_limited(self, model: str) -> bool:
        return self._limits.apply_to(model)

    async def begin_request(self, run: RunKey, model: str, estimated_tokens: int) -> None:
        """For a model with a limit. Raises ModelPaused if the run has to wait for its turn."""
        values = (run.run_id, run.workspace_id, run.attempt, model, estimated_tokens, self._limits)
        if not await self._database.transaction(store.begin_request, *values, repeatable=True):
            raise ModelPaused([model], "The limit of requests or tokens that this server has for it is reached.")

    async def end_request(self, run: RunKey, model: str, used_tokens: int) -> None:
        """Of an attempt that goes on or has finished its run. In all other cases the database notices it."""
        values = (run.run_id, run.attempt, model, used_tokens, self._limits)
        with suppress(ServiceError):
            await self._database.transaction(store.end_request, *values, repeatable=True)

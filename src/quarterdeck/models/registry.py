"""The models of a worker process, by name, and its connections to model providers.

Provider libraries are slow to import. They are imported in a thread when the first model that needs them is used.
"""

import asyncio
from typing import TYPE_CHECKING

from quarterdeck.core.settings import ModelSettings
from quarterdeck.models.catalog import ANTHROPIC, OPENAI, OPENAI_CHAT, ModelCatalog
from quarterdeck.models.demo import DEMO, DemoModel
from quarterdeck.models.demo_batches import DemoBatches
from quarterdeck.models.model import NO_OPTIONS, Batches, Model, ModelOptions, OnUsedUp

if TYPE_CHECKING:
    from quarterdeck.models.providers import ProviderConnection, ProviderModel

# Callers choose the names, so the number of names is unbounded.
_MAX_MODELS = 64


class ModelRegistry:
    def __init__(self, settings: ModelSettings, on_used_up: OnUsedUp | None = None) -> None:
        self._settings = settings
        self._on_used_up = on_used_up
        self._catalog = ModelCatalog(settings)
        self._connections: dict[str, ProviderConnection] = {}
        self._demo = DemoModel(settings.demo_pause_seconds, settings.demo_slow_seconds)
        self._models: dict[str, ProviderModel] = {}
        self._connecting = asyncio.Lock()

    async def resolve(
        self, name: str | None, options: ModelOptions = NO_OPTIONS, conversation: str | None = None
    ) -> Model:
        """The model of this name, by default the configured one. Raises ModelFailure for an unknown name or a missing
        setting. The demo model has no options. `conversation`: those that share it have the same beginning, which
        providers find in their caches by it."""
        full_name = self._catalog.effective(name)
        if full_name == DEMO:
            return self._demo
        if full_name not in self._models:
            model = await self._provider_model(full_name)
            if len(self._models) >= _MAX_MODELS:
                del self._models[next(iter(self._models))]
            self._models[full_name] = model
        return self._models[full_name].configured(options, self._settings.cache, conversation)

    def batches(self, model: Model) -> Batches | None:
        """The batch interface of a model of this registry. None: its provider has none."""
        if isinstance(model, DemoModel):
            return DemoBatches(model)
        if model.name.partition(":")[0] not in self._catalog.batch_providers():
            return None
        from quarterdeck.models.provider_batches import batches_of

        return batches_of(model)

    async def close(self) -> None:
        """Close the HTTP connections. No step may be in progress."""
        while self._connections:
            _, connection = self._connections.popitem()
            await connection.close()

    async def _provider_model(self, full_name: str) -> "ProviderModel":
        connection = await self._connection(self._catalog.check(full_name))
        from quarterdeck.models.providers import ProviderModel

        return ProviderModel(full_name, connection, self._settings.stall_seconds, self._on_used_up)

    async def _connection(self, provider: str) -> "ProviderConnection":
        if provider in self._connections:
            return self._connections[provider]
        async with self._connecting:
            if provider not in self._connections:
                # Imports take seconds and would block the event loop.
                self._connections[provider] = await asyncio.to_thread(self._connect, provider)
            return self._connections[provider]

    def _connect(self, provider: str) -> "ProviderConnection":
        from quarterdeck.models import providers as connections

        endpoint = self._catalog.endpoint(provider)
        if endpoint is not None:
            return connections.connect_openai(self._catalog.api_key(provider), endpoint, chat=True, store=False)
        if provider == ANTHROPIC:
            api_key = self._catalog.api_key(provider)
            assert api_key is not None
            return connections.connect_anthropic(api_key, self._settings.anthropic_base_url)
        if provider in (OPENAI, OPENAI_CHAT):
            settings = self._settings
            api_key, base_url = self._catalog.api_key(provider), settings.openai_base_url
            is_chat = provider == OPENAI_CHAT or self._catalog.openai_api == "chat"
            return connections.connect_openai(
                api_key,
                base_url,
                chat=is_chat,
                store=settings.openai_store,
                reasoning_summary=settings.openai_reasoning_summary,
            )
        return connections.connect_by_name(provider, self._catalog.secrets(provider))

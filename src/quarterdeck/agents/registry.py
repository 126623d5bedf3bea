"""The models of a worker process, by name, and its connections to model providers.

Provider libraries are slow to import. They are imported in a thread when the first model that needs them is used.
"""

import asyncio
from typing import TYPE_CHECKING

from quarterdeck.agents.demo import DEMO, DemoModel
from quarterdeck.agents.model import Model, ModelFailure
from quarterdeck.core.settings import ModelSettings, variable
from quarterdeck.skills.model import shown

if TYPE_CHECKING:
    from quarterdeck.agents.providers import Connection

_OPENAI, _OPENAI_CHAT, _ANTHROPIC = "openai", "openai-chat", "anthropic"
_MAX_NAME_CHARACTERS = 200
# Callers choose the names, so the number of names is unbounded.
_MAX_MODELS = 64


class ModelRegistry:
    def __init__(self, settings: ModelSettings) -> None:
        self._settings = settings
        self._connections: dict[str, Connection] = {}
        demo = DemoModel(settings.demo_pause_seconds, settings.demo_slow_seconds)
        self._models: dict[str, Model] = {DEMO: demo}
        self._connecting = asyncio.Lock()

    async def resolve(self, name: str | None) -> Model:
        """The model of this name, by default the configured one. Raises ModelFailure for an unknown name or a missing
        setting."""
        full_name = self._settings.default if name is None else name
        if full_name not in self._models:
            model = await self._provider_model(full_name)
            if len(self._models) > _MAX_MODELS:
                del self._models[next(name for name in self._models if name != DEMO)]
            self._models[full_name] = model
        return self._models[full_name]

    async def close(self) -> None:
        """Close the HTTP connections. No step may be in progress."""
        while self._connections:
            _, connection = self._connections.popitem()
            await connection.close()

    async def _provider_model(self, full_name: str) -> Model:
        provider, colon, model = full_name.partition(":")
        if not (colon and model.strip()) or len(full_name) > _MAX_NAME_CHARACTERS or not full_name.isprintable():
            raise ModelFailure(
                f'"{shown(full_name)}" is no model: write provider:name, such as anthropic:NAME, or {DEMO}.'
            )
        if provider not in (_OPENAI, _OPENAI_CHAT, _ANTHROPIC):
            known = f"{_OPENAI}, {_OPENAI_CHAT} and {_ANTHROPIC}"
            raise ModelFailure(
                f'"{shown(provider)}" is no known model provider: there are {known}, and the model {DEMO}.'
            )
        connection = await self._connection(provider)
        from quarterdeck.agents.providers import ProviderModel

        return ProviderModel(full_name, connection, self._settings.stall_seconds)

    async def _connection(self, provider: str) -> "Connection":
        if provider in self._connections:
            return self._connections[provider]
        api_key = self._api_key(provider)
        async with self._connecting:
            if provider not in self._connections:
                # Imports take seconds and would block the event loop.
                self._connections[provider] = await asyncio.to_thread(self._connect, provider, api_key)
            return self._connections[provider]

    def _connect(self, provider: str, api_key: str | None) -> "Connection":
        from quarterdeck.agents import providers

        if provider == _ANTHROPIC:
            assert api_key is not None
            return providers.connect_anthropic(api_key, self._settings.anthropic_base_url)
        return providers.connect_openai(api_key, self._settings.openai_base_url, chat=provider == _OPENAI_CHAT)

    def _api_key(self, provider: str) -> str | None:
        if provider == _ANTHROPIC:
            key, setting, needed = self._settings.anthropic_api_key, "anthropic_api_key", True
        else:
            # Self-hosted servers often need no key.
            needed = self._settings.openai_base_url is None
            key, setting = self._settings.openai_api_key, "openai_api_key"
        # A key read from a file often ends with a line break.
        key = (key or "").strip()
        if needed and not key:
            raise ModelFailure(f"{variable('model', setting)} is not set.")
        if not (key.isascii() and key.isprintable()):
            raise ModelFailure(f"{variable('model', setting)} holds characters that no key has.")
        return key or None

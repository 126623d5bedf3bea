"""Steps of a model at a server that does as it is told."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from quarterdeck.core.settings import ModelSettings
from quarterdeck.models.model import (
    NO_OPTIONS,
    Model,
    ModelOptions,
    Step,
    StepRequest,
    Turn,
    UserTurn,
)
from quarterdeck.models.registry import ModelRegistry
from quarterdeck.models.retry import step_with_retries
from quarterdeck.tools.model import ToolSpec
from tests.contract.provider_server import (
    ANTHROPIC,
    OPENAI,
    RESPONSES,
    Dialect,
    Provider,
    Reply,
    provider,
)

KEY = "sk-" + "secret" * 8
READ = ToolSpec(
    "read", "Read a file.", {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
)
HELLO = [UserTurn("Hello")]


class Talk:
    """A model at a server that does as it is told."""

    def __init__(self, model: Model, served: Provider, settings: ModelSettings) -> None:
        self.model = model
        self.served = served
        self.shown: list[str] = []
        self.retries: list[tuple[int, float, str]] = []
        self._settings = settings

    async def step(self, turns: Sequence[Turn] = HELLO, instructions: str = "Be brief.") -> Step:
        on_text, settings = self.shown.append, self._settings
        request = StepRequest(instructions, turns, [READ])
        return await step_with_retries(self.model, request, on_text, self._retried, settings)

    def _retried(self, attempt: int, pause_seconds: float, reason: str) -> None:
        self.retries.append((attempt, pause_seconds, reason))


@asynccontextmanager
async def talking(
    dialect: Dialect, *replies: Reply, options: ModelOptions = NO_OPTIONS, **changes: Any
) -> AsyncIterator[Talk]:
    async with provider(*replies) as served:
        defaults: dict[str, Any] = {
            "openai_api_key": KEY,
            "openai_base_url": f"{served.url}/v1",
            "anthropic_api_key": KEY,
            "anthropic_base_url": served.url,
            "retry_base_seconds": 0.01,
            "retry_max_seconds": 2.0,
            # The first request imports much of a provider's library, which takes long on a busy machine.
            "stall_seconds": 60.0,
        }
        settings = ModelSettings(**defaults | dialect.settings | changes)
        models = ModelRegistry(settings)
        try:
            yield Talk(await models.resolve(dialect.model, options), served, settings)
        finally:
            await models.close()


both = pytest.mark.parametrize("dialect", [OPENAI, ANTHROPIC], ids=["openai", "anthropic"])
all_three = pytest.mark.parametrize("dialect", [OPENAI, RESPONSES, ANTHROPIC], ids=["openai", "responses", "anthropic"])

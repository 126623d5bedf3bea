"""pydantic-ai's model of Anthropic, with the names of documents, which it does not send."""

from collections.abc import AsyncGenerator
from typing import cast

from anthropic.types.beta import BetaContentBlockParam, BetaRequestDocumentBlockParam
from pydantic_ai.messages import CachePoint, UserPromptPart
from pydantic_ai.models.anthropic import AnthropicModel

from quarterdeck.models.messages import document_names


class NamingModel(AnthropicModel):
    async def _map_user_prompt(
        self, part: UserPromptPart, *, include_citations: bool = False
    ) -> AsyncGenerator[BetaContentBlockParam | CachePoint]:
        names = document_names(part)
        async for block in super()._map_user_prompt(part, include_citations=include_citations):
            if isinstance(block, dict) and block.get("type") == "document":
                cast("BetaRequestDocumentBlockParam", block)["title"] = next(names)
            yield block

"""OpenAI's client, with tool definitions sent as they are.

The library goes through each definition twice for every request, to rename fields and to format dates. Definitions of
functions have neither, and for 50 of them it takes 6 ms. Only `extra_body` is sent as given.
"""

from functools import cached_property
from typing import Any

from openai import AsyncOpenAI
from openai.resources.chat import AsyncChat, AsyncCompletions
from openai.resources.responses import AsyncResponses


class OpenAIClient(AsyncOpenAI):
    @cached_property
    def chat(self) -> AsyncChat:
        return _Chat(self)

    @cached_property
    def responses(self) -> AsyncResponses:
        return _Responses(self)


class _Chat(AsyncChat):
    @cached_property
    def completions(self) -> AsyncCompletions:
        return _Completions(self._client)


class _Completions(AsyncCompletions):
    async def create(self, **arguments: Any) -> Any:
        return await super().create(**_with_tools_in_body(arguments))


class _Responses(AsyncResponses):
    async def create(self, **arguments: Any) -> Any:
        return await super().create(**_with_tools_in_body(arguments))


def _with_tools_in_body(arguments: dict[str, Any]) -> dict[str, Any]:
    tools = arguments.get("tools")
    # Otherwise omitted.
    if not isinstance(tools, list):
        return arguments
    others = {name: value for name, value in arguments.items() if name != "tools"}
    return others | {"extra_body": {**(arguments.get("extra_body") or {}), "tools": tools}}

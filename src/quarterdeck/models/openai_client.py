"""OpenAI's client, with tool definitions sent as they are, and pydantic-ai's models, with the names of documents.

The library goes through each definition twice for every request, to rename fields and to format dates. Definitions of
functions have neither, and for 50 of them it takes 6 ms. Only `extra_body` is sent as given.

pydantic-ai calls every document `filename.pdf`.
"""

from functools import cached_property
from typing import Any

from openai import AsyncOpenAI
from openai.resources.chat import AsyncChat, AsyncCompletions
from openai.resources.responses import AsyncResponses
from openai.types.chat import ChatCompletionUserMessageParam
from openai.types.responses import EasyInputMessageParam
from pydantic_ai.messages import UserPromptPart
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel

from quarterdeck.models.messages import document_names


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


class ChatModel(OpenAIChatModel):
    async def _map_user_prompt(self, part: UserPromptPart) -> ChatCompletionUserMessageParam:
        message = await super()._map_user_prompt(part)
        files = [one["file"] for one in message["content"] if not isinstance(one, str) and one["type"] == "file"]
        for file, name in zip(files, document_names(part), strict=True):
            file["filename"] = name
        return message


class ResponsesModel(OpenAIResponsesModel):
    async def _map_user_prompt(self, part: UserPromptPart) -> EasyInputMessageParam:
        message = await super()._map_user_prompt(part)
        files = [one for one in message["content"] if not isinstance(one, str) and one["type"] == "input_file"]
        for file, name in zip(files, document_names(part), strict=True):
            file["filename"] = name
        return message

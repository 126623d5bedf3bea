"""Models of all providers, called through pydantic-ai. One streamed request per step, without retries: see `retry.py`.

Imported only when such a model is used.
"""

import asyncio
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any, cast

import httpx2
from msgspec.structs import replace as replace_fields
from pydantic_ai import models as library
from pydantic_ai.direct import model_request_stream
from pydantic_ai.exceptions import ModelAPIError, UnexpectedModelBehavior, UserError
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPartDelta,
    ToolCallPartDelta,
)
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.settings import ModelSettings

from quarterdeck.core.logging import fields, log
from quarterdeck.core.text_types import storable
from quarterdeck.models.ignored_settings import ignored_settings
from quarterdeck.models.messages import to_definition, to_messages, to_turn
from quarterdeck.models.model import (
    NO_OPTIONS,
    ContextExceeded,
    ModelFailure,
    ModelOptions,
    OnText,
    RequestRefused,
    Step,
    ToolSpec,
    TransientFailure,
    Turn,
)
from quarterdeck.models.model_spans import add_options, add_response
from quarterdeck.models.output_schema import output_instructions
from quarterdeck.models.pricing import cost_usd
from quarterdeck.models.provider_connections import COMMON_EFFORT, Connection
from quarterdeck.models.provider_failures import reason_of, to_failure

# Twice the longest output of any model today. Bounds the memory that an endless answer can take.
ANSWER_CHARACTERS = 4 * 1024 * 1024


class _Unsupported(ModelFailure):
    """pydantic-ai does not send the request to this model."""


class ProviderModel:
    def __init__(self, name: str, connection: Connection, stall_seconds: float) -> None:
        self.name = name
        self._model = connection.model(name.partition(":")[2])
        self._secrets = connection.secrets
        self._effort_setting = connection.effort_setting
        self._stall_seconds = stall_seconds
        self._options = NO_OPTIONS
        self._settings: ModelSettings = {}
        self._ignored: tuple[str, ...] = ()

    def with_options(self, options: ModelOptions) -> "ProviderModel":
        """The same model on the same connection, with these options in its requests."""
        if options == NO_OPTIONS:
            return self
        configured = copy(self)
        configured._ignored = ignored_settings(
            self._model, options, common_effort=self._effort_setting == COMMON_EFFORT
        )
        options = replace_fields(options, **dict.fromkeys(configured._ignored))
        values = {
            "temperature": options.temperature,
            "max_tokens": options.max_output_tokens,
            self._effort_setting: options.reasoning_effort,
        }
        configured._options = options
        configured._settings = cast(ModelSettings, {name: value for name, value in values.items() if value is not None})
        return configured

    async def step(
        self,
        instructions: str,
        turns: Sequence[Turn],
        tools: Sequence[ToolSpec],
        on_text: OnText,
        output_schema: dict[str, Any] | None = None,
    ) -> Step:
        if output_schema is None:
            return await self._step(instructions, turns, tools, on_text)
        if self._has_structured_output and output_schema.get("type") == "object":
            try:
                return await self._step(instructions, turns, tools, on_text, output_schema)
            except ContextExceeded:
                raise
            except (RequestRefused, _Unsupported) as fault:
                # Many models and servers take some schemas only, or none beside tools.
                reason = str(fault)
                log.info("no structured output with this schema", extra=fields(model=self.name, reason=reason))
        told = "\n\n".join(filter(None, (instructions, output_instructions(output_schema))))
        return await self._step(told, turns, tools, on_text)

    @property
    def _has_structured_output(self) -> bool:
        return bool(self._model.profile.get("supports_json_schema_output", False))

    async def _step(
        self,
        instructions: str,
        turns: Sequence[Turn],
        tools: Sequence[ToolSpec],
        on_text: OnText,
        output_schema: dict[str, Any] | None = None,
    ) -> Step:
        messages = to_messages(turns, instructions, self.name)
        parameters = library.ModelRequestParameters(function_tools=[to_definition(tool) for tool in tools])
        if output_schema is not None:
            wanted = OutputObjectDefinition(output_schema, name="answer")
            parameters = replace(parameters, output_mode="native", output_object=wanted)
        add_options(self._options)
        try:
            response = await self._request(messages, parameters, on_text)
        except TimeoutError as fault:
            raise TransientFailure(f"{self.name} was silent for {self._stall_seconds:g} seconds.") from fault
        except ModelAPIError as fault:
            # Without its cause: the traceback would contain the provider's unredacted message, perhaps with the key.
            raise to_failure(fault, self.name, self._secrets) from None
        except (UserError, NotImplementedError) as fault:
            raise _Unsupported(
                f"The request cannot be put to {self.name}: {reason_of(fault, self._secrets)}"
            ) from fault
        except (UnexpectedModelBehavior, httpx2.HTTPError, httpx2.StreamError) as fault:
            raise TransientFailure(f"The answer of {self.name} broke off: {reason_of(fault, self._secrets)}") from fault
        add_response(response.model_name, response.provider_response_id, response.finish_reason)
        usage = response.usage
        return Step(
            to_turn(response, self.name),
            usage.input_tokens,
            usage.output_tokens,
            usage.cache_read_tokens,
            cost_usd(self.name, usage),
            self._ignored,
        )

    async def _request(
        self, messages: list[ModelMessage], parameters: library.ModelRequestParameters, on_text: OnText
    ) -> ModelResponse:
        clock = asyncio.get_running_loop().time
        characters = 0
        async with (
            asyncio.timeout(self._stall_seconds) as stall,
            model_request_stream(
                self._model, messages, model_settings=self._settings, model_request_parameters=parameters
            ) as stream,
        ):
            async for event in stream:
                stall.reschedule(clock() + self._stall_seconds)
                text, size = _received(event)
                characters += size
                if characters > ANSWER_CHARACTERS:
                    raise ModelFailure(f"The answer of {self.name} is longer than {ANSWER_CHARACTERS} characters.")
                if text:
                    on_text(storable(text))
            response = stream.get()
        # A connection may be closed regularly in the middle of an answer. A partial answer must not be stored as
        # complete.
        if response.state != "complete" or not _is_complete(response):
            raise TransientFailure(f"The answer of {self.name} broke off before its end.")
        return response


def _is_complete(response: ModelResponse) -> bool:
    """Whether the provider sent a finish reason. pydantic-ai fills in its own if it did not."""
    return response.finish_reason == "content_filter" or "finish_reason" in (response.provider_details or {})


def _received(event: ModelResponseStreamEvent) -> tuple[str, int]:
    """The visible text of an event, and the number of all its characters."""
    match event:
        case PartStartEvent(part=TextPart(content=text)) | PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
            return text, len(text)
        case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=thought)):
            return "", len(thought or "")
        case PartDeltaEvent(delta=ToolCallPartDelta(args_delta=str(arguments))):
            return "", len(arguments)
    return "", 0

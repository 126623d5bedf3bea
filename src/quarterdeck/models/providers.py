"""Models of all providers, called through pydantic-ai. One streamed request per step, without retries: see `retry.py`.

Imported only when such a model is used.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from decimal import Decimal
from functools import partial
from http import HTTPStatus
from typing import Any, cast

import httpx2
from genai_prices import calc_price
from msgspec import Struct
from msgspec.structs import replace as replace_fields
from pydantic_ai import models as library
from pydantic_ai.direct import model_request_stream
from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelNotFoundError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    ModelServerError,
    ModelUnavailableError,
    UnexpectedModelBehavior,
    UserError,
)
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
from pydantic_ai.models import Model
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.providers import infer_provider
from pydantic_ai.settings import ModelSettings

from quarterdeck.core.logging import fields, log
from quarterdeck.core.secrets import redact
from quarterdeck.core.text_types import storable
from quarterdeck.models.attachments import IMAGES, PDF, takes
from quarterdeck.models.catalog import is_provider
from quarterdeck.models.merged_pieces import Listener, join_pieces, listening
from quarterdeck.models.messages import reasoning_of, sources_of, to_definition, to_messages, to_turn
from quarterdeck.models.model import (
    NO_OPTIONS,
    ContentRefused,
    ContextExceeded,
    ModelFailure,
    ModelOptions,
    OnText,
    OnUsedUp,
    ProviderRefused,
    QuotaExceeded,
    Step,
    StepRequest,
    TransientFailure,
)
from quarterdeck.models.model_spans import add_to_request_span
from quarterdeck.models.output_schema import output_instructions

# Which settings pydantic-ai leaves out of requests, because the model does not take them. It only warns.
#
# The rules are those of its models for OpenAI and Anthropic. A test compares them with what is sent.

_OPENAI_MODELS = "pydantic_ai.models.openai"


def ignored_settings(model: Model, options: ModelOptions, *, common_effort: bool) -> tuple[str, ...]:
    """`common_effort`: the effort is sent by the common setting, which pydantic-ai translates for each model."""
    profile: Mapping[str, Any] = model.profile
    # Its module is not imported for this: that takes long, and other providers do not need it.
    is_openai = any(kind.__module__ == _OPENAI_MODELS for kind in type(model).__mro__)
    takes_temperature = not profile.get("anthropic_disallows_sampling_settings", False)
    if is_openai:
        takes_temperature = _openai_takes_temperature(profile, options)
    can_think = profile.get("supports_thinking", False) or profile.get("thinking_always_enabled", False)
    takes_effort = can_think or not common_effort
    return (
        *(["temperature"] if options.temperature is not None and not takes_temperature else []),
        *(["reasoning_effort"] if options.reasoning_effort is not None and not takes_effort else []),
    )


def _openai_takes_temperature(profile: Mapping[str, Any], options: ModelOptions) -> bool:
    """Reasoning models take it only while they do not reason."""
    if "temperature" in profile.get("openai_unsupported_model_settings", ()):
        return False
    if not profile.get("openai_supports_reasoning", False):
        return True
    efforts = profile.get("openai_reasoning_efforts")
    can_be_off = profile.get("openai_supports_reasoning_effort_none", False) if efforts is None else "none" in efforts
    reasons = options.reasoning_effort is not None or profile.get("thinking_enabled_by_default", False)
    return can_be_off and not reasons


# What the errors of pydantic-ai mean for a run: try again, send fewer turns, or fail.

_REASON_CHARACTERS = 500
_REFUSING = (ModelRateLimitError, ModelUnavailableError)
_TRANSIENT = (*_REFUSING, ModelServerError, ModelConnectionError)
_FINAL = (ModelRequestRejectedError, ModelQuotaExceededError)
# Errors about the account or the model, and not about the content of the request: docs/decisions/0050.
_NOT_ABOUT_CONTENT = (ModelAuthenticationError, ModelNotFoundError)


def to_failure(fault: ModelAPIError, model_name: str, secrets: Sequence[str]) -> Exception:
    if isinstance(fault, ModelContextWindowExceededError):
        return ContextExceeded(f"The session is too long for {model_name}: {reason_of(fault, secrets)}")
    status = fault.status_code if isinstance(fault, ModelHTTPError) else None
    reason = f"{model_name} failed{f' with status {status}' if status else ''}: {reason_of(fault, secrets)}"
    # No status: an error inside the stream, or a malformed response.
    transient = isinstance(fault, _TRANSIENT) or status in (None, HTTPStatus.REQUEST_TIMEOUT)
    if transient and not isinstance(fault, _FINAL):
        kind = ProviderRefused if isinstance(fault, _REFUSING) else TransientFailure
        return kind(reason, fault.retry_after)
    if isinstance(fault, ModelQuotaExceededError):
        return QuotaExceeded(reason)
    if status in (None, HTTPStatus.CONFLICT) or isinstance(fault, _NOT_ABOUT_CONTENT):
        return ModelFailure(reason)
    return ContentRefused(reason)


def reason_of(fault: Exception, secrets: Sequence[str]) -> str:
    """One sentence of bounded length, without secrets."""
    message = _provider_message(fault.body) if isinstance(fault, ModelAPIError) else None
    return clean(message or str(_root(fault)) or type(_root(fault)).__name__, secrets)


def clean(message: str, secrets: Sequence[str]) -> str:
    text = " ".join(message.split())
    for secret in secrets:
        text = text.replace(secret, "[redacted]")
    text = storable(redact(text))
    text = text if len(text) <= _REASON_CHARACTERS else f"{text[:_REASON_CHARACTERS]}…"
    return text if text.endswith((".", "…", "!", "?")) else f"{text}."


def _root(fault: BaseException) -> BaseException:
    """For a lost connection, the error of the operating system: the libraries only report the loss."""
    if isinstance(fault, ModelConnectionError):
        while fault.__cause__ is not None:
            fault = fault.__cause__
    return fault


def _provider_message(body: object) -> str | None:
    """The message in the body of a provider's error response. Its place differs between providers."""
    if isinstance(body, dict):
        inner = body.get("error", body)
        message = inner.get("message") if isinstance(inner, dict) else inner
        return message if isinstance(message, str) else None
    return body if isinstance(body, str) else None


# The HTTP clients of model providers. Each provider's library is imported with its first model.

OPENAI_URL = "https://api.openai.com/v1"
ANTHROPIC_URL = "https://api.anthropic.com"
# OpenAI's own: the common setting is not sent to models that pydantic-ai does not know, such as self-hosted ones.
_OPENAI_EFFORT = "openai_reasoning_effort"
# The common one: pydantic-ai turns it into the form that the model takes, an effort or a budget of tokens.
COMMON_EFFORT = "thinking"
_OPENAI_CACHE_KEY = "openai_prompt_cache_key"
# Of providers that pydantic-ai knows by name.
_CACHE_KEYS = {"azure": _OPENAI_CACHE_KEY, "mistral": "mistral_prompt_cache_key"}
# For pydantic-ai's setting `cache`, which it turns into what the provider offers.
_CACHE_SETTINGS = {"off": False, "standard": True, "long": "1h"}
_HOOKS = {"response": [join_pieces]}


class ProviderConnection(Struct, frozen=True):
    """One provider's HTTP client, shared by its models."""

    model: Callable[[str], library.Model]
    close: Callable[[], Awaitable[None]]
    # Keys, which no message may contain.
    secrets: tuple[str, ...]
    # The setting of pydantic-ai that takes the reasoning effort.
    effort_setting: str
    # The one that takes what requests with the same beginning have in common.
    cache_key_setting: str | None = None


def connect_openai(
    api_key: str | None, base_url: str | None, *, chat: bool, store: bool, reasoning_summary: str | None = None
) -> ProviderConnection:
    """OpenAI, or a server that does as OpenAI does."""
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel, OpenAIResponsesModelSettings
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    # Both are always given: otherwise the library reads its own environment variables.
    client = AsyncOpenAI(
        api_key=api_key or "no-key",
        base_url=base_url or OPENAI_URL,
        max_retries=0,
        http_client=DefaultAsyncHttpxClient(event_hooks=_HOOKS),
    )
    # Another server that has only chat completions need not take all that OpenAI takes.
    is_compatible = chat and base_url is not None
    provider = (
        OpenAICompatibleProvider("openai-compatible", openai_client=client)
        if is_compatible
        else OpenAIProvider(openai_client=client)
    )
    kind = OpenAIChatModel if chat else OpenAIResponsesModel
    # OpenAI stores what it is not told about.
    always = None if is_compatible else OpenAIResponsesModelSettings(openai_store=store)
    secrets = (api_key,) if api_key else ()

    def model(name: str) -> library.Model:
        reasons = (provider.model_profile(name) or {}).get("openai_supports_reasoning", False)
        summarises = reasoning_summary is not None and reasons and not chat
        summary = {"openai_reasoning_summary": reasoning_summary} if summarises else {}
        return kind(name, provider=provider, settings=cast(ModelSettings, (always or {}) | summary) or None)

    return ProviderConnection(model, client.close, secrets, _OPENAI_EFFORT, _OPENAI_CACHE_KEY)


def connect_anthropic(api_key: str, base_url: str | None) -> ProviderConnection:
    from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    client = AsyncAnthropic(
        api_key=api_key,
        base_url=base_url or ANTHROPIC_URL,
        max_retries=0,
        http_client=DefaultAsyncHttpxClient(event_hooks=_HOOKS),
    )
    provider = AnthropicProvider(anthropic_client=client)
    return ProviderConnection(
        lambda name: AnthropicModel(name, provider=provider), client.close, (api_key,), COMMON_EFFORT
    )


def connect_by_name(provider_name: str, secrets: tuple[str, ...]) -> ProviderConnection:
    """Any other provider of pydantic-ai, which reads keys and addresses from the environment."""
    try:
        provider = infer_provider(provider_name)
    except (ImportError, UserError, ValueError) as fault:
        # The catalog has checked what is needed: the package is there, but too old or broken, or a value is wrong.
        raise ModelFailure(f"{provider_name} cannot be used: {clean(str(fault), secrets)}") from None
    # OpenAI's and Groq's libraries retry by themselves.
    if hasattr(provider.client, "max_retries"):
        provider.client.max_retries = 0

    async def close() -> None:
        # Leaving the context closes the HTTP client that the provider has made.
        async with provider:
            pass

    def model(name: str) -> library.Model:
        return library.infer_model(f"{provider_name}:{name}", lambda _: provider)

    return ProviderConnection(model, close, secrets, COMMON_EFFORT, _CACHE_KEYS.get(provider_name))


_BY_BATCH = {"processing": "batch"}


def cost_usd(model: str, usage: object, *, by_batch: bool = False) -> Decimal | None:
    """By the list prices that genai-prices ships, also with a base URL: proxies and gateways mostly keep the names of
    the models behind them. Endpoints have no prices. `usage` has the attributes of pydantic-ai's RequestUsage. None:
    the price of the model is unknown."""
    provider, _, name = model.partition(":")
    if not is_provider(provider):
        return None
    try:
        price = calc_price(usage, name, provider_id=provider).total_price
        if not by_batch:
            return price
        listed = calc_price(usage, name, provider_id=provider, price_context=_BY_BATCH).total_price
        # Without a listed price for batches, it is the ordinary one. Both providers ask for half of it.
        return listed if listed < price else price / 2
    except LookupError:
        return None
    except Exception as fault:
        # A compatible server may report numbers that contradict each other. An answer without a price is still stored.
        log.warning("the usage of a request has no price", exc_info=fault, extra=fields(model=model))
        return None


# Twice the longest output of any model today. Bounds the memory that an endless answer can take.
ANSWER_CHARACTERS = 4 * 1024 * 1024


class _Unsupported(ModelFailure):
    """pydantic-ai does not send the request to this model."""


class ProviderModel:
    def __init__(
        self, name: str, connection: ProviderConnection, stall_seconds: float, on_used_up: OnUsedUp | None = None
    ) -> None:
        self.name = name
        self._on_used_up = on_used_up
        self.library_model = connection.model(name.partition(":")[2])
        self.secrets = connection.secrets
        self._effort_setting = connection.effort_setting
        self._cache_key_setting = connection.cache_key_setting
        self._stall_seconds = stall_seconds
        self._options = NO_OPTIONS
        self.settings: ModelSettings = {}
        self._ignored: tuple[str, ...] = ()

    def configured(self, options: ModelOptions, cache: str, conversation: str | None) -> "ProviderModel":
        """The same model on the same connection, with these settings in its requests."""
        configured = copy(self)
        configured._ignored = ignored_settings(
            self.library_model, options, common_effort=self._effort_setting == COMMON_EFFORT
        )
        options = replace_fields(options, **dict.fromkeys(configured._ignored))
        values = {
            "temperature": options.temperature,
            "max_tokens": options.max_output_tokens,
            self._effort_setting: options.reasoning_effort,
            "cache": _CACHE_SETTINGS[cache],
        }
        if self._cache_key_setting is not None and cache != "off":
            values[self._cache_key_setting] = conversation
        configured._options = options
        configured.settings = cast(ModelSettings, {name: value for name, value in values.items() if value is not None})
        return configured

    def takes(self, media_type: str) -> bool:
        """What pydantic-ai cannot send to this model is left out, too: it would refuse the whole request."""
        profile = self.library_model.profile
        if media_type == PDF:
            documents = profile.get("supported_document_media_types", (PDF,))
            can_be_sent = profile.get("supports_document_input", True) and PDF in documents
        else:
            can_be_sent = media_type not in IMAGES or profile.get("supports_image_input", True)
        return can_be_sent and takes(self.name, media_type)

    async def step(self, request: StepRequest, on_text: OnText) -> Step:
        schema = request.output_schema
        if schema is None:
            return await self._step(request, on_text)
        if self.takes_schema(schema):
            try:
                return await self._step(request, on_text)
            except ContextExceeded:
                raise
            except (ContentRefused, _Unsupported) as fault:
                # Many models and servers take some schemas only, or none beside tools.
                reason = str(fault)
                log.info("no structured output with this schema", extra=fields(model=self.name, reason=reason))
        return await self._step(with_told_schema(request, schema), on_text)

    def takes_schema(self, schema: Mapping[str, Any]) -> bool:
        """Whether it is sent as structured output."""
        return schema.get("type") == "object" and self.library_model.profile.get("supports_json_schema_output", False)

    async def _step(self, request: StepRequest, on_text: OnText) -> Step:
        messages = to_messages(request.turns, request.instructions, self.name)
        parameters = to_parameters(request)
        temperature, max_tokens = self._options.temperature, self._options.max_output_tokens
        add_to_request_span({"gen_ai.request.temperature": temperature, "gen_ai.request.max_tokens": max_tokens})
        try:
            response = await self._request(messages, parameters, on_text, request.pause_seconds)
        except TimeoutError as fault:
            raise TransientFailure(f"{self.name} was silent for {self._stall_seconds:g} seconds.") from fault
        except ModelAPIError as fault:
            # Without its cause: the traceback would contain the provider's unredacted message, perhaps with the key.
            raise to_failure(fault, self.name, self.secrets) from None
        except (UserError, NotImplementedError) as fault:
            raise _Unsupported(f"The request cannot be put to {self.name}: {reason_of(fault, self.secrets)}") from fault
        except (UnexpectedModelBehavior, httpx2.HTTPError, httpx2.StreamError) as fault:
            raise TransientFailure(f"The answer of {self.name} broke off: {reason_of(fault, self.secrets)}") from fault
        add_to_request_span(
            {
                "gen_ai.response.model": response.model_name,
                "gen_ai.response.id": response.provider_response_id,
                "gen_ai.response.finish_reasons": None if response.finish_reason is None else [response.finish_reason],
            }
        )
        return self.to_step(response)

    def to_step(self, response: ModelResponse, *, by_batch: bool = False) -> Step:
        usage = response.usage
        return Step(
            to_turn(response, self.name),
            usage.input_tokens,
            usage.output_tokens,
            usage.cache_read_tokens,
            usage.cache_write_tokens,
            cost_usd(self.name, usage, by_batch=by_batch),
            self._ignored,
            reasoning_of(response),
            sources_of(response),
        )

    async def _request(
        self,
        messages: list[ModelMessage],
        parameters: library.ModelRequestParameters,
        on_text: OnText,
        pause_seconds: Callable[[], float],
    ) -> ModelResponse:
        clock = asyncio.get_running_loop().time
        characters = 0
        async with asyncio.timeout(self._stall_seconds) as stall:

            def go_on() -> None:
                stall.reschedule(clock() + self._stall_seconds)

            on_used_up = None if self._on_used_up is None else partial(self._on_used_up, self.name)
            listener = Listener(lambda text: on_text(storable(text)), go_on, pause_seconds, on_used_up=on_used_up)
            with listening(listener):
                async with model_request_stream(
                    self.library_model, messages, model_settings=self.settings, model_request_parameters=parameters
                ) as stream:
                    async for event in stream:
                        go_on()
                        text, size = _received(event)
                        characters += size
                        if characters > ANSWER_CHARACTERS:
                            raise ModelFailure(
                                f"The answer of {self.name} is longer than {ANSWER_CHARACTERS} characters."
                            )
                        if text := listener.unseen(text):
                            on_text(storable(text))
                    response = stream.get()
        # A connection may be closed regularly in the middle of an answer. A partial answer must not be stored as
        # complete.
        if response.state != "complete" or not _is_complete(response):
            raise TransientFailure(f"The answer of {self.name} broke off before its end.")
        return response


def with_told_schema(request: StepRequest, schema: dict[str, Any]) -> StepRequest:
    """The output schema as a part of the instructions."""
    told = "\n\n".join(filter(None, (request.instructions, output_instructions(schema))))
    return replace_fields(request, instructions=told, output_schema=None)


def to_parameters(request: StepRequest) -> library.ModelRequestParameters:
    parameters = library.ModelRequestParameters(function_tools=[to_definition(tool) for tool in request.tools])
    if request.output_schema is None:
        return parameters
    wanted = OutputObjectDefinition(request.output_schema, name="answer")
    return replace(parameters, output_mode="native", output_object=wanted)


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

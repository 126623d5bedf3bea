"""The HTTP clients of model providers. Each provider's library is imported with its first model."""

from collections.abc import Awaitable, Callable

from msgspec import Struct
from pydantic_ai import models as library
from pydantic_ai.exceptions import UserError
from pydantic_ai.providers import infer_provider

from quarterdeck.models.model import ModelFailure
from quarterdeck.models.provider_failures import clean

OPENAI_URL = "https://api.openai.com/v1"
ANTHROPIC_URL = "https://api.anthropic.com"
# OpenAI's own: the common setting is not sent to models that pydantic-ai does not know, such as self-hosted ones.
_OPENAI_EFFORT = "openai_reasoning_effort"
# The common one: pydantic-ai turns it into the form that the model takes, an effort or a budget of tokens.
COMMON_EFFORT = "thinking"


class Connection(Struct, frozen=True):
    """One provider's HTTP client, shared by its models."""

    model: Callable[[str], library.Model]
    close: Callable[[], Awaitable[None]]
    # Keys, which no message may contain.
    secrets: tuple[str, ...]
    # The setting of pydantic-ai that takes the reasoning effort.
    effort_setting: str


def connect_openai(api_key: str | None, base_url: str | None, *, chat: bool, store: bool) -> Connection:
    """OpenAI, or a server that does as OpenAI does."""
    from pydantic_ai.models.openai import OpenAIResponsesModelSettings
    from pydantic_ai.providers.openai import OpenAIProvider

    from quarterdeck.models.openai_client import ChatModel, OpenAIClient, ResponsesModel

    # Both are always given: otherwise the library reads its own environment variables.
    client = OpenAIClient(api_key=api_key or "no-key", base_url=base_url or OPENAI_URL, max_retries=0)
    provider = OpenAIProvider(openai_client=client)
    kind = ChatModel if chat else ResponsesModel
    # OpenAI stores what it is not told about.
    always = OpenAIResponsesModelSettings(openai_store=store)
    secrets = (api_key,) if api_key else ()
    return Connection(
        lambda name: kind(name, provider=provider, settings=always), client.close, secrets, _OPENAI_EFFORT
    )


def connect_compatible(api_key: str | None, base_url: str) -> Connection:
    """A server that is compatible with OpenAI's chat completions."""
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    from quarterdeck.models.openai_client import ChatModel, OpenAIClient

    client = OpenAIClient(api_key=api_key or "no-key", base_url=base_url, max_retries=0)
    provider = OpenAICompatibleProvider("openai-compatible", openai_client=client)
    secrets = (api_key,) if api_key else ()
    return Connection(lambda name: ChatModel(name, provider=provider), client.close, secrets, _OPENAI_EFFORT)


def connect_anthropic(api_key: str, base_url: str | None) -> Connection:
    from anthropic import AsyncAnthropic
    from pydantic_ai.providers.anthropic import AnthropicProvider

    from quarterdeck.models.anthropic_model import NamingModel

    client = AsyncAnthropic(api_key=api_key, base_url=base_url or ANTHROPIC_URL, max_retries=0)
    provider = AnthropicProvider(anthropic_client=client)
    return Connection(lambda name: NamingModel(name, provider=provider), client.close, (api_key,), COMMON_EFFORT)


def connect_by_name(provider_name: str, secrets: tuple[str, ...]) -> Connection:
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

    return Connection(model, close, secrets, COMMON_EFFORT)

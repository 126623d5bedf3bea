"""Which models can be used, from settings and environment: the API checks names with it, the worker connects with it.

Imports no provider library.
"""

import os
from collections.abc import Mapping
from importlib.util import find_spec

from msgspec import Struct

from quarterdeck.auth.access import Access, visible_workspace
from quarterdeck.core.actors import Permission
from quarterdeck.core.call import Call
from quarterdeck.core.operation import operation
from quarterdeck.core.settings import ModelSettings, variable
from quarterdeck.models.demo import DEMO
from quarterdeck.models.model import ModelFailure
from quarterdeck.skills.model import shown

# The model providers of pydantic-ai that are used by name, and what each needs. Imports no provider library.
#
# pydantic-ai reads the variables itself. They are listed here so that the API can say what is missing.


class Needs(Struct, frozen=True):
    # The package and our extra that installs it.
    module: str
    extra: str
    # One variable of each group must be set.
    variables: tuple[tuple[str, ...], ...]
    # Further variables that hold secrets.
    secrets: tuple[str, ...] = ()

    def missing(self, environment: Mapping[str, str]) -> str | None:
        """One sentence for the operator. None: everything is there."""
        if not _is_installed(self.module):
            return f"Its package is not installed on the server: pip install 'quarterdeck[server,{self.extra}]'."
        for group in self.variables:
            if not any(environment.get(name, "").strip() for name in group):
                return f"{' or '.join(group)} is not set on the server."
        return None

    def secret_values(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        """What must not be part of a message."""
        names = [name for group in self.variables for name in group if name.endswith(("_KEY", "_TOKEN"))]
        return tuple(filter(None, (environment.get(name, "").strip() for name in (*names, *self.secrets))))


def _with_openai(*variables: tuple[str, ...], extra: str = "server") -> Needs:
    """A provider that is called through OpenAI's library, which the server always has."""
    return Needs("openai", extra, variables)


KNOWN_PROVIDERS: Mapping[str, Needs] = {
    "alibaba": _with_openai(("ALIBABA_API_KEY", "DASHSCOPE_API_KEY")),
    "azure": _with_openai(("AZURE_OPENAI_API_KEY",), ("AZURE_OPENAI_ENDPOINT",), ("OPENAI_API_VERSION",)),
    # Its credentials may also come from a profile or from the role of the machine.
    "bedrock": Needs(
        "boto3",
        "bedrock",
        (("AWS_DEFAULT_REGION",),),
        ("AWS_BEARER_TOKEN_BEDROCK", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
    ),
    "cerebras": _with_openai(("CEREBRAS_API_KEY",)),
    "cohere": Needs("cohere", "cohere", (("CO_API_KEY",),)),
    "deepseek": _with_openai(("DEEPSEEK_API_KEY",)),
    "fireworks": _with_openai(("FIREWORKS_API_KEY",)),
    "google": Needs("google.genai", "google", (("GOOGLE_API_KEY", "GEMINI_API_KEY"),)),
    "google-cloud": Needs(
        "google.genai", "google", (("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_API_KEY", "GOOGLE_CLOUD_PROJECT"),)
    ),
    "groq": Needs("groq", "groq", (("GROQ_API_KEY",),)),
    "heroku": _with_openai(("HEROKU_INFERENCE_KEY",)),
    "huggingface": Needs("huggingface_hub", "huggingface", (("HF_TOKEN",),)),
    "mistral": Needs("mistralai.client", "mistral", (("MISTRAL_API_KEY",),)),
    "moonshotai": _with_openai(("MOONSHOTAI_API_KEY",)),
    "nebius": _with_openai(("NEBIUS_API_KEY",)),
    "ollama": _with_openai(("OLLAMA_BASE_URL",)),
    "openrouter": _with_openai(("OPENROUTER_API_KEY",), extra="openrouter"),
    "ovhcloud": _with_openai(("OVHCLOUD_API_KEY",)),
    "sambanova": _with_openai(("SAMBANOVA_API_KEY",)),
    "together": _with_openai(("TOGETHER_API_KEY",)),
    "vercel": _with_openai(("VERCEL_AI_GATEWAY_API_KEY", "VERCEL_OIDC_TOKEN")),
    "vllm": _with_openai(("VLLM_BASE_URL",)),
    "xai": Needs("xai_sdk", "xai", (("XAI_API_KEY",),)),
    "zai": _with_openai(("ZAI_API_KEY",)),
}


def endpoint_key(endpoint: str) -> str:
    """The variable with the key of an OpenAI-compatible endpoint. It need not be set."""
    return f"{endpoint.replace('-', '_').upper()}_API_KEY"


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        # The package that contains the provider is missing.
        return False


OPENAI, OPENAI_CHAT, ANTHROPIC = "openai", "openai-chat", "anthropic"
# Their keys are settings of ours.
_CONFIGURED = (OPENAI, OPENAI_CHAT, ANTHROPIC)
_MAX_NAME_CHARACTERS = 200


class ListedModel(Struct, frozen=True):
    model: str
    provider: str


class ModelList(Struct, frozen=True):
    default: str
    providers: list[str]
    items: list[ListedModel]


class ModelCatalog:
    def __init__(self, settings: ModelSettings, environment: Mapping[str, str] | None = None) -> None:
        """`environment`: with the keys of providers that have no setting of ours. None: that of the process."""
        self._settings = settings
        self._environment = os.environ if environment is None else environment
        self._endpoints: Mapping[str, str] = settings.endpoints or {}

    @property
    def default(self) -> str:
        return self._settings.default

    def effective(self, name: str | None) -> str:
        """The model of a session that names this one, or none."""
        return self.default if name is None else name

    def providers(self) -> list[str]:
        """Those with everything they need. The model `demo` needs nothing."""
        names = dict.fromkeys((*self._endpoints, *_CONFIGURED, *KNOWN_PROVIDERS))
        return [DEMO, *(name for name in names if self._missing(name) is None)]

    @property
    def openai_api(self) -> str:
        """How `openai:` is asked."""
        return self._settings.openai_api or ("responses" if self._settings.openai_base_url is None else "chat")

    def batch_providers(self) -> list[str]:
        """Those whose models can be asked by batches. pydantic-ai has no batches of chat completions."""
        names = [ANTHROPIC, *([OPENAI] if self.openai_api == "responses" else [])]
        return [DEMO, *(name for name in names if name not in self._endpoints)]

    def listed(self) -> ModelList:
        """The default model first, then those of the setting `model.names`. A provider may serve others too."""
        providers = self.providers()
        named = [name for name in (*(self._settings.names or ()), DEMO) if _provider_of(name) in providers]
        names = dict.fromkeys([self.default, *named])
        return ModelList(self.default, providers, [ListedModel(name, _provider_of(name)) for name in names])

    def check(self, name: str) -> str:
        """The provider of the model. Raises ModelFailure if none can serve it."""
        if name == DEMO:
            return DEMO
        provider, colon, model = name.partition(":")
        is_written_well = colon and model.strip() and len(name) <= _MAX_NAME_CHARACTERS and name.isprintable()
        is_known = provider in self._endpoints or is_provider(provider)
        if not is_written_well or not is_known:
            raise ModelFailure(f'Unknown model "{shown(name)}". {self._advice()}')
        missing = self._missing(provider)
        if missing is not None:
            raise ModelFailure(f'Unknown model "{shown(name)}". {missing} {self._advice()}')
        return provider

    def endpoint(self, provider: str) -> str | None:
        """The base URL if the provider is a configured endpoint."""
        return self._endpoints.get(provider)

    def api_key(self, provider: str) -> str | None:
        """The key of an endpoint, or of a provider with a setting of ours. None: it needs none. Raises ModelFailure
        if it is missing or malformed."""
        if provider in self._endpoints:
            name = endpoint_key(provider)
            key, needed = self._environment.get(name), False
        elif provider == ANTHROPIC:
            name = variable("model", "anthropic_api_key")
            key, needed = self._settings.anthropic_api_key, True
        else:
            name = variable("model", "openai_api_key")
            # Self-hosted servers often need no key.
            key, needed = self._settings.openai_api_key, self._settings.openai_base_url is None
        # A key read from a file often ends with a line break.
        key = (key or "").strip()
        if needed and not key:
            raise ModelFailure(f"{name} is not set on the server.")
        if not (key.isascii() and key.isprintable()):
            raise ModelFailure(f"{name} holds characters that no key has.")
        return key or None

    def secrets(self, provider: str) -> tuple[str, ...]:
        """The secrets of a provider that reads its keys from the environment."""
        return KNOWN_PROVIDERS[provider].secret_values(self._environment)

    def _missing(self, provider: str) -> str | None:
        """What the operator has to do before the provider can be used. None: nothing."""
        if provider not in self._endpoints and provider not in _CONFIGURED:
            return KNOWN_PROVIDERS[provider].missing(self._environment)
        try:
            self.api_key(provider)
        except ModelFailure as fault:
            return str(fault)
        return None

    def _advice(self) -> str:
        others = [f"{provider}:NAME" for provider in self.providers() if provider != DEMO]
        return f"Use {' or '.join([*others, DEMO])}."


def _provider_of(name: str) -> str:
    return name.partition(":")[0]


def is_provider(name: str) -> bool:
    """Not the model `demo` and not an endpoint, unless it has the name of a provider."""
    return name in _CONFIGURED or name in KNOWN_PROVIDERS


EXAMPLES = (
    ModelList(
        "openai:gpt-5",
        ["demo", "openai", "openai-chat"],
        [ListedModel("openai:gpt-5", "openai"), ListedModel("demo", "demo")],
    ),
)


@operation(
    summary="List the models that sessions can use",
    description="`default` is used by sessions that name no model. `items` are suggestions of the operator: a session "
    "can name any model of the listed providers, as `provider:name`.",
    permission=Permission.WORKSPACE_READ,
    success="The default model, the configured providers and the suggested models.",
)
async def list_models(access: Access, models: ModelCatalog, call: Call[None]) -> ModelList:
    await access.find(call, visible_workspace(call))
    return models.listed()

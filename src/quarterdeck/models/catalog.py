"""Which models can be used, from settings and environment: the API checks names with it, the worker connects with it.

Imports no provider library.
"""

import os
from collections.abc import Mapping

from msgspec import Struct

from quarterdeck.core.agent_settings import ModelSettings
from quarterdeck.core.settings import variable
from quarterdeck.models.demo import DEMO
from quarterdeck.models.known_providers import KNOWN_PROVIDERS, endpoint_key
from quarterdeck.models.model import ModelFailure
from quarterdeck.skills.model import shown

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
        is_known = provider in self._endpoints or provider in _CONFIGURED or provider in KNOWN_PROVIDERS
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
        """Of an endpoint, or of a provider with a setting of ours. None: it needs none. Raises ModelFailure if it is
        missing or malformed."""
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
        """Of a provider that reads its keys from the environment."""
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

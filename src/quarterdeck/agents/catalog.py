"""Which models can be used, from the settings alone: the API checks names with it, and the worker connects with it.

Imports no provider library.
"""

from msgspec import Struct

from quarterdeck.agents.demo import DEMO
from quarterdeck.agents.model import ModelFailure
from quarterdeck.core.settings import ModelSettings, variable
from quarterdeck.skills.model import shown

OPENAI, OPENAI_CHAT, ANTHROPIC = "openai", "openai-chat", "anthropic"
_PROVIDERS = (OPENAI, OPENAI_CHAT, ANTHROPIC)
_MAX_NAME_CHARACTERS = 200


class ListedModel(Struct, frozen=True):
    model: str
    provider: str


class ModelList(Struct, frozen=True):
    default: str
    providers: list[str]
    items: list[ListedModel]


class ModelCatalog:
    def __init__(self, settings: ModelSettings) -> None:
        self._settings = settings

    @property
    def default(self) -> str:
        return self._settings.default

    def effective(self, name: str | None) -> str:
        """The model of a session that names this one, or none."""
        return self.default if name is None else name

    def providers(self) -> list[str]:
        """Those with the settings they need. The model `demo` needs none."""
        return [DEMO, *(provider for provider in _PROVIDERS if self._is_configured(provider))]

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
        if not is_written_well or provider not in _PROVIDERS:
            raise ModelFailure(f'Unknown model "{shown(name)}". {self._advice()}')
        try:
            self.api_key(provider)
        except ModelFailure as fault:
            raise ModelFailure(f'Unknown model "{shown(name)}". {fault} {self._advice()}') from None
        return provider

    def api_key(self, provider: str) -> str | None:
        """None: the provider needs none. Raises ModelFailure if it is missing or malformed."""
        if provider == ANTHROPIC:
            key, setting, needed = self._settings.anthropic_api_key, "anthropic_api_key", True
        else:
            # Self-hosted servers often need no key.
            needed = self._settings.openai_base_url is None
            key, setting = self._settings.openai_api_key, "openai_api_key"
        # A key read from a file often ends with a line break.
        key = (key or "").strip()
        if needed and not key:
            raise ModelFailure(f"{variable('model', setting)} is not set on the server.")
        if not (key.isascii() and key.isprintable()):
            raise ModelFailure(f"{variable('model', setting)} holds characters that no key has.")
        return key or None

    def _is_configured(self, provider: str) -> bool:
        try:
            self.api_key(provider)
        except ModelFailure:
            return False
        return True

    def _advice(self) -> str:
        others = [f"{provider}:NAME" for provider in self.providers() if provider != DEMO]
        return f"Use {' or '.join([*others, DEMO])}."


def _provider_of(name: str) -> str:
    return name.partition(":")[0]

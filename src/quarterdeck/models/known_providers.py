"""The model providers of pydantic-ai that are used by name, and what each needs. Imports no provider library.

pydantic-ai reads the variables itself. They are listed here so that the API can say what is missing.
"""

from collections.abc import Mapping
from importlib.util import find_spec

from msgspec import Struct


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
        # Of a package inside another one.
        return False

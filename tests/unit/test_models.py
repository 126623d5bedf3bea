"""Finding a session's model, and how long a failed request waits."""

import tomllib
from importlib.metadata import metadata

import pytest
from pydantic_ai.providers import infer_provider_class

from quarterdeck.core.setting_types import Endpoints, ModelNames
from quarterdeck.core.settings import ModelSettings
from quarterdeck.core.text_types import storable
from quarterdeck.models.catalog import KNOWN_PROVIDERS, ListedModel, ModelCatalog, ModelList
from quarterdeck.models.demo import DemoModel
from quarterdeck.models.model import ModelFailure, Step, StepRequest, TransientFailure
from quarterdeck.models.providers import ProviderModel
from quarterdeck.models.registry import ModelRegistry
from quarterdeck.models.retry import pause_before_retry, step_with_retries
from tests.pages import ROOT


async def resolved(name: str | None, **settings: str) -> str:
    models = ModelRegistry(ModelSettings(**settings))  # type: ignore[arg-type]
    try:
        return (await models.resolve(name)).name
    finally:
        await models.close()


async def test_the_default_is_the_demo_model() -> None:
    assert await resolved(None) == "demo"
    assert isinstance(await ModelRegistry(ModelSettings()).resolve("demo"), DemoModel)
    assert await resolved(None, default="anthropic:claude", anthropic_api_key="k") == "anthropic:claude"


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("anthropic:claude", "QUARTERDECK_MODEL_ANTHROPIC_API_KEY"),
        ("openai:gpt", "QUARTERDECK_MODEL_OPENAI_API_KEY"),
        ("openai-chat:gpt", "QUARTERDECK_MODEL_OPENAI_API_KEY"),
    ],
)
async def test_a_missing_key_is_named(name: str, setting: str) -> None:
    with pytest.raises(ModelFailure, match=f'^Unknown model "{name}". {setting} is not set on the server. Use demo.$'):
        await resolved(name, anthropic_api_key=" \n")
    with pytest.raises(ModelFailure, match=setting) as failed:
        await resolved(name, anthropic_api_key="schlüssel", openai_api_key="schl\nüssel")
    assert "ssel" not in str(failed.value)


async def test_keys_of_other_programs_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    for name in ("openai:gpt", "anthropic:claude"):
        with pytest.raises(ModelFailure, match="is not set"):
            await resolved(name)


def test_every_known_provider_is_one_of_the_library() -> None:
    """And has an extra of ours, if the server does not bring its package."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    library = metadata("pydantic-ai-slim").get_all("Provides-Extra") or []
    for name, needs in KNOWN_PROVIDERS.items():
        assert needs.extra in extras, name
        if needs.missing({}) is None or "is not installed" not in str(needs.missing({})):
            assert infer_provider_class(name) is not None
        if needs.extra != "server":
            assert extras[needs.extra] == [f"pydantic-ai-slim[{needs.extra}]>=2.66,<3"]
            assert needs.extra in library
    with pytest.raises(ValueError, match="Unknown provider"):
        infer_provider_class("nobody")


def test_what_a_provider_lacks_is_one_line() -> None:
    catalog = ModelCatalog(ModelSettings(), {"MISTRAL_API_KEY": "k", "GROQ_API_KEY": " \n", "OPENROUTER_API_KEY": "k"})
    assert catalog.check("openrouter:a/b") == "openrouter"
    for name, missing in [
        ("mistral:m", "Its package is not installed on the server: pip install 'quarterdeck[server,mistral]'."),
        ("groq:llama", "GROQ_API_KEY is not set on the server."),
        ("alibaba:qwen", "ALIBABA_API_KEY or DASHSCOPE_API_KEY is not set on the server."),
    ]:
        with pytest.raises(ModelFailure) as failed:
            catalog.check(name)
        assert str(failed.value) == f'Unknown model "{name}". {missing} Use openrouter:NAME or demo.'


def test_endpoints_are_providers() -> None:
    endpoints = Endpoints.parse("gpu=http://127.0.0.1:1/v1, groq=https://proxy.example.com/v1")
    settings = ModelSettings(endpoints=endpoints, names=ModelNames.parse("gpu:llama, mistral:m"))
    catalog = ModelCatalog(settings, {"GPU_API_KEY": "k\n"})
    assert catalog.listed() == ModelList(
        "demo", ["demo", "gpu", "groq"], [ListedModel("demo", "demo"), ListedModel("gpu:llama", "gpu")]
    )
    assert [catalog.check(name) for name in ("gpu:a:b", "groq:x")] == ["gpu", "groq"], "in place of the provider"
    assert (catalog.api_key("gpu"), catalog.api_key("groq")) == ("k", None)
    for wrong in ("gpu", "Gpu=http://a", "demo=http://a", "a=ftp://b", "a=http://b, a=http://c", "=http://a", ""):
        with pytest.raises(ValueError, match=r"is not a|is there twice"):
            Endpoints.parse(wrong)


async def test_own_server_needs_no_key() -> None:
    assert await resolved("openai:llama3.2:3b", openai_base_url="http://127.0.0.1:1/v1") == "openai:llama3.2:3b"


@pytest.mark.parametrize("name", ["", "gpt", "openai:", "openai: ", ":gpt", "Demo", "demo:x", "nobody:x", "openai:\n"])
async def test_unknown_model_is_reported(name: str) -> None:
    with pytest.raises(ModelFailure, match=r'^Unknown model ".*"\. Use openai:NAME or openai-chat:NAME or demo\.$'):
        await resolved(name, openai_api_key="k")


async def test_a_hostile_name_is_shown_in_part() -> None:
    with pytest.raises(ModelFailure) as failed:
        await resolved("openai:\0" + "x" * 100_000, openai_api_key="k")
    assert len(str(failed.value)) < 300
    assert str(failed.value).isprintable()


async def test_models_are_kept_but_not_all_of_them() -> None:
    models = ModelRegistry(ModelSettings(openai_base_url="http://127.0.0.1:1/v1"))

    async def kept(name: str) -> object:
        """What all conversations with this model share."""
        model = await models.resolve(name)
        assert isinstance(model, ProviderModel)
        return model.library_model

    first = await kept("openai:first")
    assert await kept("openai:first") is first
    for number in range(70):
        await models.resolve(f"openai:{number}")
    assert await kept("openai:first") is not first
    assert (await models.resolve("demo")).name == "demo"
    await models.close()


# --- trying again ---


class Flaky:
    name = "flaky"

    def __init__(self, failures: int) -> None:
        self.left = failures
        self.asked = 0

    def takes(self, media_type: str) -> bool:
        return True

    async def step(self, *given: object) -> Step:
        self.asked += 1
        if self.left > 0:
            self.left -= 1
            raise TransientFailure("It is away.")
        return await DemoModel(0, 60).step(StepRequest("", []), lambda _: None)


@pytest.mark.parametrize(("failures", "retries"), [(0, 0), (1, 1), (3, 4)])
async def test_step_is_retried_until_it_succeeds(failures: int, retries: int) -> None:
    settings = ModelSettings(request_retries=retries, retry_base_seconds=0.001)
    model = Flaky(failures)
    await step_with_retries(model, StepRequest("", []), lambda _: None, lambda *_: None, settings)
    assert model.asked == failures + 1


@pytest.mark.parametrize(("retries", "times"), [(0, "once"), (2, "3 times")])
async def test_step_fails_after_the_last_retry(retries: int, times: str) -> None:
    settings = ModelSettings(request_retries=retries, retry_base_seconds=0.001)
    with pytest.raises(ModelFailure, match=rf"^It is away\. Tried {times}\.$"):
        await step_with_retries(Flaky(10), StepRequest("", []), lambda _: None, lambda *_: None, settings)


def test_pauses_double_up_to_a_bound() -> None:
    settings = ModelSettings(retry_base_seconds=1, retry_max_seconds=10)
    for tries, longest in [(1, 1), (2, 2), (3, 4), (4, 8), (5, 10), (5000, 10)]:
        assert longest / 2 <= pause_before_retry(tries, None, settings) <= longest
    assert pause_before_retry(1, 7, settings) == 7
    assert pause_before_retry(1, 700, settings) == 10
    assert len({pause_before_retry(1, None, settings) for _ in range(10)}) > 1


@pytest.mark.parametrize(
    ("text", "stored"), [("plain ä 🙂", "plain ä 🙂"), ("a\0b", "a\ufffdb"), ("\ud800", "?"), ("", "")]
)
def test_text_from_elsewhere_is_made_storable(text: str, stored: str) -> None:
    assert storable(text) == stored

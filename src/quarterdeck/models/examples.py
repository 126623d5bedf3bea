"""Examples of models for the OpenAPI document."""

from quarterdeck.models.catalog import ListedModel, ModelList

EXAMPLES = (
    ModelList(
        "openai:gpt-5",
        ["demo", "openai", "openai-chat"],
        [ListedModel("openai:gpt-5", "openai"), ListedModel("demo", "demo")],
    ),
)

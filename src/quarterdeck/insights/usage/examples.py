"""An example of usage for the OpenAPI document."""

from datetime import date

from quarterdeck.insights.usage.model import UsageBody, UsageItem

EXAMPLES = (
    UsageBody(
        since=date(2026, 3, 1),
        until=date(2026, 4, 1),
        items=[
            UsageItem(
                group="anthropic:claude-sonnet-5",
                label=None,
                runs=41,
                input_tokens=1_284_220,
                cached_tokens=960_000,
                output_tokens=82_410,
                cost_usd=2.49,
            )
        ],
    ),
)

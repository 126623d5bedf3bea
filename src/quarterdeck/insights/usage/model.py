"""Tokens and cost of a workspace, in groups."""

from datetime import date
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

# Rows that one call reads: one for each run and day. Earlier days are left out.
MAX_ROWS = 500_000
MAX_ITEMS = 1000


class UsageGroup(StrEnum):
    DAY = "day"
    SESSION = "session"
    MODEL = "model"
    API_KEY = "api_key"


class UsageItem(Struct, frozen=True, kw_only=True):
    group: Annotated[
        str | None,
        Meta(
            description="The day (UTC), the session ID, the model, or the key ID. null: the key or model is not known."
        ),
    ]
    label: Annotated[
        str | None,
        Meta(description="Title of the session or label of the key. null: it has none, or no longer exists."),
    ]
    runs: Annotated[
        int,
        Meta(
            ge=0,
            description="Runs that stored a step in the period, and runs without any step that were created in it.",
        ),
    ]
    input_tokens: int
    cached_tokens: Annotated[int, Meta(description="Part of input_tokens.")]
    output_tokens: int
    cost_usd: Annotated[
        float | None, Meta(description="Without steps whose price is unknown. null: no price is known.")
    ]


class UsageBody(Struct, frozen=True, kw_only=True):
    since: Annotated[
        date,
        Meta(description=f"First day that is counted. Later than `from` if there are more than {MAX_ROWS:,} runs."),
    ]
    until: Annotated[date, Meta(description="The day after the last one that is counted.")]
    items: Annotated[list[UsageItem], Meta(max_length=MAX_ITEMS)]


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

"""Query parameters that several operations have. See `Query` in `core/operation.py`."""

from datetime import UTC, date, datetime, timedelta
from typing import Annotated

from msgspec import Meta, field

from quarterdeck.core.operation import Query
from quarterdeck.core.pages import MAX_PATH_BYTES

MAX_NUMBER = 2**31 - 1
_NO_NUL = r"^[^\u0000]*$"
_DEFAULT_DAYS = 30
_MAX_DAYS = 366

Number = Annotated[int, Meta(ge=1, le=MAX_NUMBER, extra_json_schema={"format": "int32"})]
Text = Annotated[str, Meta(pattern=_NO_NUL)]
Path = Annotated[str, Meta(min_length=1, max_length=MAX_PATH_BYTES, pattern=r"^[^\u0000]+$")]
PathPrefix = Annotated[str, Meta(max_length=MAX_PATH_BYTES, pattern=_NO_NUL)]


class ArchivedQuery(Query, frozen=True):
    archived: Annotated[bool, Meta(description="List archived ones instead of active ones.")] = False


class VersionsQuery(Query, frozen=True):
    base: Annotated[Number, Meta(description="Number of the old version.", examples=[1])]
    head: Annotated[Number, Meta(description="Number of the new version.", examples=[2])]


class DaysQuery(Query, frozen=True):
    """Whole days in UTC."""

    from_: Annotated[
        date | None,
        Meta(
            description=f"First day. By default {_DEFAULT_DAYS} days before `to`, at most {_MAX_DAYS}. A time counts "
            "as its day.",
            examples=["2026-03-01"],
        ),
    ] = field(name="from", default=None)
    to: Annotated[
        date | None,
        Meta(
            description="The day after the last one. By default tomorrow. A time after midnight counts as the "
            "next day.",
            examples=["2026-04-01"],
            extra={"round_up": True},
        ),
    ] = None

    @property
    def end(self) -> date:
        return self.to or datetime.now(UTC).date() + timedelta(days=1)

    @property
    def start(self) -> date:
        """A longer period is shortened."""
        earliest, usual = (
            max(self.end, date.min + timedelta(days=days)) - timedelta(days=days) for days in (_MAX_DAYS, _DEFAULT_DAYS)
        )
        return usual if self.from_ is None else max(self.from_, earliest)

    def fault(self) -> str | None:
        is_reversed = self.from_ is not None and self.from_ > self.end
        return "from must not be after to, which is tomorrow by default." if is_reversed else None

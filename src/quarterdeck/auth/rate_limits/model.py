"""Records of the rate limiter."""

from uuid import UUID

from msgspec import Struct


class Rate(Struct, frozen=True):
    """A configured limit: a burst of requests, and one more request per interval."""

    name: str
    burst: int
    interval_us: int


class Caller(Struct, frozen=True):
    """The credential (API key or session token) and workspace that a request is charged to."""

    credential_id: UUID
    workspace_id: UUID


class RateState(Struct, frozen=True):
    """The state of one rate for one caller. `backlog_us` is the time until the full burst is available again."""

    rate: Rate
    backlog_us: int


class Decision(Struct, frozen=True):
    """Whether a request is allowed, and the states after it. A refused request does not change the states."""

    allowed: bool
    states: tuple[RateState, ...]

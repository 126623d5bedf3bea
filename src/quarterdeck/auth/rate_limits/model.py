"""Records of the rate limiter."""

from uuid import UUID

from msgspec import Struct

# One key for each rate, in the order of the rates: what a caller is charged under.
Keys = tuple[str, ...]


class Rate(Struct, frozen=True):
    """A configured limit: a burst of requests, and one more request per interval."""

    name: str
    burst: int
    interval_us: int

    def key(self, owner_id: UUID) -> str:
        """Under which the backlog of an owner is kept, in memory or in Redis."""
        return f"quarterdeck:limit:{self.name}:{owner_id}"


class Caller(Struct, frozen=True):
    """What requests with a credential are charged to: its workspace, and the keys of its backlogs."""

    workspace_id: UUID
    keys: Keys


class RateState(Struct, frozen=True):
    """The state of one rate for one caller. `backlog_us` is the time until the full burst is available again."""

    rate: Rate
    backlog_us: int


class Decision(Struct, frozen=True):
    """Whether a request is allowed, and the states after it. A refused request does not change the states."""

    allowed: bool
    states: tuple[RateState, ...]

"""How much may be asked for, by whom, and how much of it is left."""

from uuid import UUID

from msgspec import Struct


class Rate(Struct, frozen=True):
    """So many requests at once, and one more with each interval."""

    name: str
    burst: int
    interval_us: int


class Payer(Struct, frozen=True):
    """Whom a request is charged to. The credential is a key or a session token."""

    credential_id: UUID
    workspace_id: UUID


class Standing(Struct, frozen=True):
    """How a payer stands with one rate: the time after which it will be as if nothing had been asked for."""

    rate: Rate
    backlog_us: int


class Taken(Struct, frozen=True):
    """What became of a request, and the standings after it. A refused one leaves them as they were."""

    allowed: bool
    standings: tuple[Standing, ...]

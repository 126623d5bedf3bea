"""People, as they are shown."""

from uuid import UUID

from msgspec import Struct


class ActorBody(Struct, frozen=True):
    """Who did something, resolved for display. Still renders after the person has left."""

    user_id: UUID
    display_name: str | None
    primary_email: str | None

"""Sessions and their tokens as they are asked for and shown."""

from typing import Annotated
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType

from quarterdeck.texts import Line, Moment


class CreateSessionBody(Struct, frozen=True):
    title: Line | None = None


class SessionBody(Struct, frozen=True):
    id: UUID
    workspace_id: UUID
    title: str | None
    created_at: Moment


class CreateSessionTokenBody(Struct, frozen=True):
    expires_at: Annotated[Moment | None, Meta(description="By default and at most as the server is set.")] = None


class CreatedSessionTokenBody(Struct, frozen=True, kw_only=True):
    id: UUID
    session_id: UUID
    prefix: str
    created_at: Moment
    expires_at: Moment
    token: Annotated[str | UnsetType, Meta(description="Shown once: a replayed answer does not hold it.")] = UNSET

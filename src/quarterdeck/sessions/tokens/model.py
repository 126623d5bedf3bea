"""Session tokens: request bodies, response bodies and stored records."""

from typing import Annotated
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType

from quarterdeck.core.actors import ActorBody
from quarterdeck.core.text_types import Line, Moment


class CreateSessionTokenBody(Struct, frozen=True):
    expires_at: Annotated[Moment | None, Meta(description="Default and maximum are settings of the server.")] = None
    # UNSET: the Idempotency-Key of a body without these has the fingerprint of earlier releases.
    label: Annotated[Line | UnsetType | None, Meta(description="For the log of the session. null: none.")] = UNSET
    may_resolve: Annotated[
        bool | UnsetType,
        Meta(description="The token may list and resolve the actions of its session. By default it may not."),
    ] = UNSET


class SessionTokenBody(Struct, frozen=True, kw_only=True):
    id: UUID
    session_id: UUID
    prefix: str
    label: str | None
    may_resolve: Annotated[bool, Meta(description="The token may list and resolve the actions of its session.")]
    api_key_id: Annotated[UUID, Meta(description="The key that created the token. Revoking it ends the token.")]
    created_by: ActorBody
    created_at: Moment
    expires_at: Moment
    revoked_at: Moment | None


class CreatedSessionTokenBody(SessionTokenBody, frozen=True, kw_only=True):
    token: Annotated[str | UnsetType, Meta(description="Shown only once, never in a replayed response.")] = UNSET


class SessionTokenPage(Struct, frozen=True):
    items: list[SessionTokenBody]
    next_cursor: UUID | None


class NewSessionToken(Struct, frozen=True):
    """A token to be stored."""

    id: UUID
    session_id: UUID
    api_key_id: UUID
    secret_hash: bytes
    prefix: str
    label: str | None
    may_resolve: bool
    expires_at: Moment

"""Session tokens: request bodies, response bodies and stored records."""

from typing import Annotated
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict, replace

from quarterdeck.core.actors import ActorBody
from quarterdeck.core.example_ids import ADA, API_KEY, EVENING, MORNING, SESSION
from quarterdeck.core.text_types import Line, Moment


class CreateSessionTokenBody(Struct, frozen=True):
    expires_at: Annotated[Moment | None, Meta(description="Default and maximum are settings of the server.")] = None
    label: Annotated[Line | None, Meta(description="For the log of the session. null: none.")] = None
    may_resolve: Annotated[bool, Meta(description="The token may list and resolve the actions of its session.")] = False


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


# Truncated: a complete secret would trigger secret scanners.
_SECRET = "qds_live_h2Lq81Zc…"

_TOKEN = SessionTokenBody(
    id=UUID("0192f0d6-41b2-7c95-a8e3-7d0f5b2c9a07"),
    session_id=SESSION,
    prefix="qds_live_h2Lq81Zc",
    label="support widget",
    may_resolve=False,
    api_key_id=API_KEY,
    created_by=ADA,
    created_at=MORNING,
    expires_at=EVENING,
    revoked_at=None,
)

EXAMPLES = (
    CreateSessionTokenBody(label="support widget"),
    CreatedSessionTokenBody(**asdict(_TOKEN), token=_SECRET),
    replace(_TOKEN, revoked_at=EVENING),
    SessionTokenPage([_TOKEN], None),
)

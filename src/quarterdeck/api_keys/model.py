"""API keys: request bodies, response bodies and stored records."""

from typing import Annotated
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict, replace

from quarterdeck.core.actors import ActorBody, Permission
from quarterdeck.core.example_ids import ADA, API_KEY, EVENING, MORNING
from quarterdeck.core.text_types import Line, Moment


class CreateApiKeyBody(Struct, frozen=True):
    label: Line
    permissions: Annotated[list[Permission], Meta(max_length=100)]
    expires_at: Annotated[
        Moment | None, Meta(description="Must be in the future and before the year 10000 (UTC). null: never.")
    ] = None


class RotateApiKeyBody(Struct, frozen=True):
    overlap_seconds: Annotated[
        int,
        Meta(
            ge=0,
            le=7 * 24 * 3600,
            description="How long the old key keeps working. 0 revokes it immediately, with its session tokens.",
        ),
    ] = 24 * 3600


class ApiKeyBody(Struct, frozen=True):
    id: UUID
    label: str
    prefix: Annotated[str, Meta(description="Marker, environment and eight characters of the secret.")]
    permissions: list[Permission]
    created_at: Moment
    created_by: ActorBody
    expires_at: Moment | None
    last_used_at: Moment | None
    revoked_at: Moment | None


class CreatedApiKeyBody(ApiKeyBody, frozen=True, kw_only=True):
    secret: Annotated[str | UnsetType, Meta(description="Shown only once, never in a replayed response.")] = UNSET


class ApiKeyPage(Struct, frozen=True):
    items: list[ApiKeyBody]
    next_cursor: UUID | None


class RotatedKey(Struct, frozen=True):
    """The state of a key that is to be replaced by rotation."""

    lineage_id: UUID
    is_replaced: bool
    has_ended: bool


# Truncated: a complete secret would trigger secret scanners.
_SECRET = "qd_live_4fT9wKx2…"

_KEY = ApiKeyBody(
    id=API_KEY,
    label="build server",
    prefix="qd_live_4fT9wKx2",
    permissions=[Permission.WORKSPACE_READ, Permission.SESSION_MANAGE],
    created_at=MORNING,
    created_by=ADA,
    expires_at=None,
    last_used_at=None,
    revoked_at=None,
)

EXAMPLES = (
    # Without expires_at: a fixed date would become invalid with time.
    CreateApiKeyBody("build server", [Permission.WORKSPACE_READ, Permission.SESSION_MANAGE]),
    RotateApiKeyBody(),
    CreatedApiKeyBody(**asdict(_KEY), secret=_SECRET),
    replace(_KEY, last_used_at=EVENING, revoked_at=EVENING),
    ApiKeyPage([replace(_KEY, last_used_at=EVENING)], None),
)

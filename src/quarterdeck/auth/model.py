"""The description of the calling credential."""

from enum import StrEnum
from typing import Annotated
from uuid import UUID

from msgspec import Meta, Struct

from quarterdeck.core.actors import ActorBody, Permission, Role
from quarterdeck.core.example_ids import ADA, API_KEY, WORKSPACE
from quarterdeck.core.text_types import Moment


class CallerKind(StrEnum):
    API_KEY = "api_key"
    SESSION_TOKEN = "session_token"
    DEVICE = "device"
    TRUSTED_JOB = "trusted_job"


class CallerBody(Struct, frozen=True, kw_only=True):
    """The calling credential, without its secret."""

    kind: CallerKind
    id: Annotated[UUID, Meta(description="ID of the key, token, device or trusted job.")]
    prefix: Annotated[str, Meta(description="Marker, environment and eight characters of the secret.")]
    label: Annotated[
        str | None, Meta(description="Of a device or a trusted job: its name. null: a token without a label.")
    ]
    role: Annotated[Role | None, Meta(description="The role of the person in the workspace. null for a token.")]
    permissions: Annotated[
        list[Permission],
        Meta(
            description="What the credential may do today: never more than the role of its person. Empty for a token, "
            "which can access only its session."
        ),
    ]
    workspace_id: UUID
    workspace_name: str
    session_id: Annotated[UUID | None, Meta(description="The session of a token. null for a key.")]
    may_resolve: Annotated[
        bool, Meta(description="A token may list and resolve the actions of its session. false for a key.")
    ]
    expires_at: Annotated[Moment | None, Meta(description="null: never.")]
    user: Annotated[ActorBody, Meta(description="Who created the credential.")]


EXAMPLES = (
    CallerBody(
        kind=CallerKind.API_KEY,
        id=API_KEY,
        prefix="qd_live_4fT9wKx2",
        label="build server",
        role=Role.OWNER,
        permissions=[Permission.WORKSPACE_READ, Permission.SESSION_MANAGE],
        workspace_id=WORKSPACE,
        workspace_name="Analytical engines",
        session_id=None,
        may_resolve=False,
        expires_at=None,
        user=ADA,
    ),
)

"""Who is calling and what they may do."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated
from uuid import UUID

from msgspec import Meta, Struct

from quarterdeck.texts import Moment
from quarterdeck.workspaces.model import ActorBody


class Permission(StrEnum):
    WORKSPACE_READ = "workspace.read"
    KEY_MANAGE = "key.manage"
    SESSION_MANAGE = "session.manage"
    SKILL_MANAGE = "skill.manage"


# Asking the enum for each takes longer than all else that is done with a row.
PERMISSIONS = {permission.value: permission for permission in Permission}


class CredentialKind(StrEnum):
    API_KEY = "qd"
    SESSION_TOKEN = "qds"


class Credential(Struct, frozen=True):
    """What a caller presented: well formed, not yet looked up."""

    kind: CredentialKind
    secret_hash: bytes


class Principal(Struct, frozen=True):
    """A credential that was found alive. A session token has a session and no permissions."""

    workspace_id: UUID
    api_key_id: UUID
    user_id: UUID
    # What an Idempotency-Key is scoped by: the first key of a chain of rotations, or a token's session.
    scope_id: UUID
    permissions: frozenset[Permission]
    expires_at: datetime | None
    session_id: UUID | None = None
    session_token_id: UUID | None = None

    def may(self, permission: Permission) -> bool:
        """A token needs no permission for what it sees."""
        return self.session_id is not None or permission in self.permissions

    def may_see_workspace(self, named: UUID | None) -> bool:
        """`named` is the Service-Workspace header; without it a key means its own. A token sees only its session."""
        return self.session_id is None and named in (None, self.workspace_id)


class CallerKind(StrEnum):
    API_KEY = "api_key"
    SESSION_TOKEN = "session_token"


class CallerBody(Struct, frozen=True, kw_only=True):
    """The credential that asked, as it may be shown."""

    kind: CallerKind
    id: Annotated[UUID, Meta(description="Of the key or token.")]
    prefix: Annotated[str, Meta(description="Marker, environment and eight characters of the secret.")]
    label: Annotated[str | None, Meta(description="What people call the key. A token has none.")]
    permissions: Annotated[list[Permission], Meta(description="None for a token: its session is all that it sees.")]
    workspace_id: UUID
    workspace_name: str
    session_id: Annotated[UUID | None, Meta(description="The session of a token. null: a key.")]
    expires_at: Annotated[Moment | None, Meta(description="null: never.")]
    user: Annotated[ActorBody, Meta(description="Who made the credential.")]

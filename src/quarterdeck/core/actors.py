"""Callers: credentials, the principals they identify, and the users who created them."""

from datetime import datetime
from enum import StrEnum
from operator import is_
from typing import Any, Literal
from uuid import UUID

import msgspec
from msgspec import Struct


class ActorBody(Struct, frozen=True):
    """Who did something, resolved for display. Still renders after the person has left."""

    user_id: UUID
    display_name: str | None
    primary_email: str | None


class Caller(Struct, frozen=True):
    """A credential and its user, as stored in the session's log. Without the e-mail address: session tokens read it."""

    type: Literal["api_key", "session_token", "device"]
    id: UUID
    # null: a session token without a label.
    label: str | None
    user_id: UUID
    display_name: str | None


class Permission(StrEnum):
    WORKSPACE_READ = "workspace.read"
    KEY_MANAGE = "key.manage"
    SESSION_MANAGE = "session.manage"
    ACTION_RESOLVE = "action.resolve"
    SKILL_MANAGE = "skill.manage"
    AGENT_MANAGE = "agent.manage"
    CREDENTIAL_MANAGE = "credential.manage"
    MEMBER_MANAGE = "member.manage"


class Role(StrEnum):
    """A role has the permissions of the roles below it: `permissions_of()` in find_principals.sql."""

    OWNER = "owner"
    ADMIN = "admin"
    MEMBER = "member"
    VIEWER = "viewer"


class CredentialKind(StrEnum):
    API_KEY = "qd"
    SESSION_TOKEN = "qds"
    DEVICE = "qdd"
    JOB_KEY = "qdj"


class Credential(Struct, frozen=True):
    """A well-formed credential that has not been looked up yet."""

    kind: CredentialKind
    secret_hash: bytes
    # Of a device, which can act in several workspaces: the one that the request names.
    workspace_id: UUID | None = None


# The credential of operations that need none. No secret has this hash.
NOBODY = Credential(CredentialKind.API_KEY, b"")


class Principal(Struct, frozen=True):
    """The owner of a valid credential. A session token has a session and no permissions."""

    workspace_id: UUID
    # None: a device, a trusted job, or a session token that was made with a device.
    api_key_id: UUID | None
    user_id: UUID
    role: Role
    # Scope of Idempotency-Keys: the first key of a chain of rotations, a token's session, the device in this
    # workspace, or the trusted job.
    scope_id: UUID
    permissions: frozenset[Permission]
    expires_at: datetime | None
    session_id: UUID | None = None
    session_token_id: UUID | None = None
    device_id: UUID | None = None
    trusted_job_id: UUID | None = None
    # Of a trusted job: the only object that it can see.
    skill_id: UUID | None = None
    # Whether a session token may list and resolve the actions of its session.
    may_resolve: bool = False

    def may(self, permission: Permission) -> bool:
        """A session token needs no permission for its own session."""
        return self.session_id is not None or permission in self.permissions

    @property
    def is_confined(self) -> bool:
        """To a session or a skill."""
        return self.session_id is not None or self.skill_id is not None

    @property
    def credential_id(self) -> UUID:
        found = self.session_token_id or self.device_id or self.trusted_job_id or self.api_key_id
        assert found is not None
        return found

    @property
    def may_see_emails(self) -> bool:
        """A session token is handed to end users, who must not learn the addresses of the team. What a job reads is
        often public."""
        return not self.is_confined

    def may_see_workspace(self, requested_id: UUID | None) -> bool:
        """`requested_id` is the Service-Workspace header; its default is the key's own workspace. Tokens and jobs see
        no workspace."""
        return not self.is_confined and requested_id in (None, self.workspace_id)


def without_emails(record: Any) -> Any:
    """The same record if no actor in it has an e-mail address, else a copy."""
    if isinstance(record, ActorBody):
        return msgspec.structs.replace(record, primary_email=None)
    if isinstance(record, Struct):
        changed = {}
        for name in record.__struct_fields__:
            value = getattr(record, name)
            if (shown := without_emails(value)) is not value:
                changed[name] = shown
        return msgspec.structs.replace(record, **changed) if changed else record
    if isinstance(record, list):
        shown_items = [without_emails(item) for item in record]
        return record if all(map(is_, shown_items, record)) else shown_items
    return record


class Origin(Struct, frozen=True):
    """Where a request came from, as far as the server can tell."""

    address: str | None = None
    request_id: str | None = None

"""Audit events and the filter of their list."""

from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

from msgspec import Meta, Struct

from quarterdeck.core.actors import ActorBody
from quarterdeck.core.example_ids import ADA, API_KEY, EVENING, SESSION
from quarterdeck.core.operation import Query, Text
from quarterdeck.core.text_types import Moment


class ObjectType(StrEnum):
    ACTION = "action"
    AGENT = "agent"
    AGENT_VERSION = "agent_version"
    API_KEY = "api_key"
    CREDENTIAL = "credential"
    DEVICE = "device"
    FILE = "file"
    INVITATION = "invitation"
    MCP_SERVER = "mcp_server"
    MEMBER = "member"
    RUN = "run"
    SESSION = "session"
    SESSION_TOKEN = "session_token"
    SKILL = "skill"
    SKILL_VERSION = "skill_version"
    TRUSTED_JOB = "trusted_job"
    WEBHOOK = "webhook"
    WORKSPACE = "workspace"


class Change(Struct, frozen=True):
    """A change to be recorded. `detail` holds names and numbers, never content and never a secret."""

    action: str
    object_type: ObjectType
    object_id: UUID
    detail: dict[str, Any]
    # The name or label at this time. None for sessions, whose titles are looked up when the log is read.
    object_name: str | None = None


class Actor(Struct, frozen=True):
    """Who made the change. All None: the operator."""

    user_id: UUID | None = None
    api_key_id: UUID | None = None
    session_token_id: UUID | None = None
    device_id: UUID | None = None
    trusted_job_id: UUID | None = None


class AuditEventBody(Struct, frozen=True):
    id: UUID
    created_at: Moment
    action: Annotated[
        str,
        Meta(
            description="Name of the operation, or sign_in. Operations of the operator: create_workspace, "
            "change_workspace, add_member, change_member, remove_member, create_account_link and set_user."
        ),
    ]
    object_type: ObjectType
    object_id: UUID
    object_name: Annotated[
        str | None,
        Meta(
            description="Name or label of the object at the time of the event; of a session its current title. null: "
            "it has none, the session was deleted, or the event was recorded before version 0.2.0."
        ),
    ]
    actor: Annotated[
        ActorBody | None,
        Meta(description="null: the operator, with `qd admin`, or the OpenID provider that `detail` names."),
    ]
    api_key_id: Annotated[
        UUID | None, Meta(description="The key that was used, or that created the session token that was used.")
    ]
    session_token_id: UUID | None
    device_id: Annotated[
        UUID | None, Meta(description="The browser or command line that the person has signed in with.")
    ]
    trusted_job_id: Annotated[UUID | None, Meta(description="The trusted job that acted for the person.")]
    address: Annotated[str | None, Meta(description="Address of the client or its proxy.")]
    request_id: str | None
    detail: Any


class AuditEventPage(Struct, frozen=True):
    items: list[AuditEventBody]
    next_cursor: UUID | None


class AuditQuery(Query, frozen=True):
    action: Annotated[Text | None, Meta(description="Only events with this action.")] = None
    object_type: Annotated[ObjectType | None, Meta(description="Only events for objects of this type.")] = None
    object_id: Annotated[UUID | None, Meta(description="Only events for this object, even if it no longer exists.")] = (
        None
    )
    user_id: Annotated[UUID | None, Meta(description="Only events caused by this person's credentials.")] = None
    since: Annotated[Moment | None, Meta(description="Only events at or after this time.")] = None
    until: Annotated[Moment | None, Meta(description="Only events before this time.")] = None


_EVENT = AuditEventBody(
    id=UUID("0192f0d4-1f30-7c55-b2e8-4a9d6c1f7e07"),
    created_at=EVENING,
    action="create_session_token",
    object_type=ObjectType.SESSION_TOKEN,
    object_id=UUID("0192f0d4-1f2b-7d90-8c46-7e3b5a0d9f08"),
    object_name="qds_live_8hR2mVc5",
    actor=ADA,
    api_key_id=API_KEY,
    session_token_id=None,
    device_id=None,
    trusted_job_id=None,
    address="203.0.113.7",
    request_id="0192f0d4-1f21-7a6e-9b02-c58d1e4f3a09",
    detail={"session_id": str(SESSION), "prefix": "qds_live_8hR2mVc5"},
)

EXAMPLES = (AuditEventPage([_EVENT], None),)

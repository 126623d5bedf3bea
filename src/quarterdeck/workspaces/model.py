"""Workspaces."""

from typing import Annotated
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType

from quarterdeck.agents.configuration import Limit, SetLimit
from quarterdeck.core.actors import ActorBody
from quarterdeck.core.example_ids import ADA, MORNING, WORKSPACE
from quarterdeck.core.retention import KeepDays, ReceiptDays, RetentionDays
from quarterdeck.core.text_types import Moment
from quarterdeck.runs.model import Usage


class WorkspaceLimits(Struct, frozen=True):
    """A run that reaches a limit waits for an action of the kind `budget`."""

    day: Annotated[Limit, Meta(description="All runs of the workspace together, from midnight to midnight UTC.")] = (
        Limit()
    )


class SetWorkspaceLimits(Struct, frozen=True, forbid_unknown_fields=True):
    """What is left out stays as it is."""

    day: Annotated[
        SetLimit | UnsetType,
        Meta(description="All runs of the workspace together, from midnight to midnight UTC."),
    ] = UNSET


class SetRetention(Struct, frozen=True, forbid_unknown_fields=True):
    """Days, or null for the default of the server. What is left out stays as it is."""

    run_days: KeepDays | UnsetType | None = UNSET
    event_days: KeepDays | UnsetType | None = UNSET
    file_days: KeepDays | UnsetType | None = UNSET
    receipt_days: ReceiptDays | UnsetType | None = UNSET
    audit_days: KeepDays | UnsetType | None = UNSET
    delivery_days: KeepDays | UnsetType | None = UNSET
    usage_days: KeepDays | UnsetType | None = UNSET


class WorkspaceBody(Struct, frozen=True):
    id: UUID
    name: str
    created_at: Moment
    owner: Annotated[ActorBody, Meta(description="Others can be owners too: see the members.")]
    max_key_days: Annotated[int | None, Meta(description="Maximum lifetime of new keys, in days. null: no maximum.")]
    limits: WorkspaceLimits
    used_today: Annotated[Usage, Meta(description="Since midnight UTC. Changes without a new revision.")]
    retention: Annotated[
        RetentionDays, Meta(description="Retention that is set for this workspace. null: the default of the server.")
    ]
    effective_retention: Annotated[
        RetentionDays,
        Meta(description="Retention in force. null: kept until deleted. Changes without a new revision."),
    ]
    revision: Annotated[int, Meta(ge=1, description="Number of changes. The ETag is derived from it.")]


class ChangeWorkspaceBody(Struct, frozen=True):
    """Changes only the given fields. The operator changes the others with `qd admin`."""

    limits: SetWorkspaceLimits | UnsetType = UNSET
    retention: SetRetention | UnsetType = UNSET


_LIMITS = WorkspaceLimits(day=Limit(max_cost_usd=20.0))

EXAMPLES = (
    WorkspaceBody(
        WORKSPACE,
        "Analytical engines",
        MORNING,
        ADA,
        90,
        limits=_LIMITS,
        used_today=Usage(184_220, 96_000, 61_000, 12_410, 0.47),
        retention=RetentionDays(event_days=30),
        effective_retention=RetentionDays(
            run_days=365, event_days=30, receipt_days=7, audit_days=365, delivery_days=30
        ),
        revision=3,
    ),
    ChangeWorkspaceBody(
        limits=SetWorkspaceLimits(day=SetLimit(max_cost_usd=20.0)), retention=SetRetention(event_days=30, run_days=None)
    ),
)

"""Examples of workspaces and members for the OpenAPI document."""

from quarterdeck.agents.configuration import Limit, SetLimit
from quarterdeck.core.example_ids import ADA, MORNING, WORKSPACE
from quarterdeck.core.retention import RetentionDays
from quarterdeck.runs.model import Usage
from quarterdeck.workspaces.model import (
    ChangeWorkspaceBody,
    MemberBody,
    MemberPage,
    MemberRole,
    SetRetention,
    SetWorkspaceLimits,
    WorkspaceBody,
    WorkspaceLimits,
)

_LIMITS = WorkspaceLimits(day=Limit(max_cost_usd=20.0))

EXAMPLES = (
    WorkspaceBody(
        WORKSPACE,
        "Analytical engines",
        MORNING,
        ADA,
        90,
        limits=_LIMITS,
        used_today=Usage(184_220, 96_000, 12_410, 0.47),
        retention=RetentionDays(event_days=30),
        effective_retention=RetentionDays(
            run_days=365, event_days=30, receipt_days=7, audit_days=365, delivery_days=30, job_days=7
        ),
        revision=3,
    ),
    ChangeWorkspaceBody(
        limits=SetWorkspaceLimits(day=SetLimit(max_cost_usd=20.0)), retention=SetRetention(event_days=30, run_days=None)
    ),
    MemberPage([MemberBody(ADA, MemberRole.OWNER, MORNING, None)], None),
)

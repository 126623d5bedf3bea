"""Examples of workspaces and members for the OpenAPI document."""

from quarterdeck.agents.configuration import Limit, SetLimit
from quarterdeck.conversations.runs.model import Usage
from quarterdeck.core.example_ids import ADA, MORNING, WORKSPACE
from quarterdeck.workspaces.model import (
    ChangeWorkspaceBody,
    MemberBody,
    MemberPage,
    MemberRole,
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
        revision=3,
    ),
    ChangeWorkspaceBody(limits=SetWorkspaceLimits(day=SetLimit(max_cost_usd=20.0))),
    MemberPage([MemberBody(ADA, MemberRole.OWNER, MORNING, None)], None),
)

"""Examples of workspaces and members for the OpenAPI document."""

from quarterdeck.core.example_ids import ADA, MORNING, WORKSPACE
from quarterdeck.workspaces.model import MemberBody, MemberPage, MemberRole, WorkspaceBody

EXAMPLES = (
    WorkspaceBody(WORKSPACE, "Analytical engines", MORNING, ADA, 90),
    MemberPage([MemberBody(ADA, MemberRole.OWNER, MORNING, None)], None),
)

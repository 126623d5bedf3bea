"""A workspace and a person, made up for the document."""

from quarterdeck.story import MORNING, USER, WORKSPACE
from quarterdeck.workspaces.model import ActorBody, MemberBody, MemberPage, MemberRole, WorkspaceBody

ADA = ActorBody(USER, "Ada Byron", "ada@example.com")

EXAMPLES = (
    WorkspaceBody(WORKSPACE, "Analytical engines", MORNING, ADA, 90),
    MemberPage([MemberBody(ADA, MemberRole.OWNER, MORNING, None)], None),
)

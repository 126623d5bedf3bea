"""An example of a caller for the OpenAPI document."""

from quarterdeck.auth.model import CallerBody, CallerKind
from quarterdeck.core.actors import Permission
from quarterdeck.core.example_ids import ADA, API_KEY, WORKSPACE

EXAMPLES = (
    CallerBody(
        kind=CallerKind.API_KEY,
        id=API_KEY,
        prefix="qd_live_4fT9wKx2",
        label="build server",
        permissions=[Permission.WORKSPACE_READ, Permission.SESSION_MANAGE],
        workspace_id=WORKSPACE,
        workspace_name="Analytical engines",
        session_id=None,
        may_resolve=False,
        expires_at=None,
        user=ADA,
    ),
)

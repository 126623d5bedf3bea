"""Example values for the OpenAPI document."""

from datetime import timedelta

from msgspec.structs import replace

from quarterdeck.core.actors import Caller
from quarterdeck.core.example_ids import ACTION, API_KEY, EVENING, RUN, SESSION, USER
from quarterdeck.runs.actions.model import ActionBody, ActionKind, ActionPage, ActionState, Decision, ResolveActionBody

_OPEN = ActionBody(
    id=ACTION,
    session_id=SESSION,
    run_id=RUN,
    kind=ActionKind.APPROVAL,
    state=ActionState.OPEN,
    call_id="call_7Jd2",
    tool="add_note",
    arguments={"text": "The incident is over."},
    reached=None,
    reason="The tool add_note writes, and no rule of the session allows it.",
    created_at=EVENING,
    expires_at=EVENING + timedelta(days=7),
    resolved_at=None,
    resolved_by=None,
    resolution=None,
)

EXAMPLES = (
    ResolveActionBody(decision=Decision.ALLOW, remember="session"),
    replace(
        _OPEN,
        state=ActionState.RESOLVED,
        resolved_at=EVENING + timedelta(minutes=4),
        resolved_by=Caller("api_key", API_KEY, "release server", USER, "Ada Byron"),
        resolution={"decision": "allow", "remember": "session"},
    ),
    ActionPage([_OPEN], None),
)

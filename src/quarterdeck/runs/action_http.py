"""Actions over HTTP."""

from quarterdeck.auth.access import Access
from quarterdeck.changes.perform import Changes
from quarterdeck.core import errors
from quarterdeck.core.actors import Permission
from quarterdeck.core.call import Answer
from quarterdeck.http.operation import Query, Refusal, operation
from quarterdeck.http.request import Request
from quarterdeck.runs import action_rules, action_service
from quarterdeck.runs.action_model import (
    ActionBody,
    ActionFilter,
    ActionKind,
    ActionPage,
    ActionState,
    ResolveActionBody,
)

_TOKENS = "A session token needs `may_resolve` and sees the actions of its session; other tokens get 404."


@operation(
    summary="List actions",
    description="What the runs of the workspace wait for, and what they have waited for. One page per call, newest "
    f"first unless order=asc. A page may hold fewer actions than `limit`. {_TOKENS}",
    permission=Permission.WORKSPACE_READ,
    success_type=ActionPage,
    success="One page. next_cursor is null on the last page.",
    paged=True,
    cursor_must_exist=False,
    session_token=True,
    queries=(
        Query("state", {"type": "string", "enum": list(ActionState)}, "Only actions in this state."),
        Query("kind", {"type": "string", "enum": list(ActionKind)}, "Only actions of this kind."),
        Query("session_id", {"type": "string", "format": "uuid"}, "Only actions of this session."),
    ),
)
async def list_actions(request: Request, access: Access) -> ActionPage:
    page = request.page_request()
    filters = ActionFilter(
        state=request.query_choice("state", ActionState),
        kind=request.query_choice("kind", ActionKind),
        session_id=request.query_id("session_id"),
    )
    return await action_service.list_actions(access, request.call_without_body(), filters, page)


@operation(
    summary="Get an action",
    description=_TOKENS,
    permission=Permission.WORKSPACE_READ,
    success_type=ActionBody,
    success="The action.",
    session_token=True,
)
async def get_action(request: Request, access: Access) -> ActionBody:
    action_id = request.path_id("action_id")
    return await action_service.get_action(access, request.call_without_body(), action_id)


@operation(
    summary="Resolve an action",
    description="Answers an open action. The run continues when none of its actions is open. The first answer counts; "
    f"the same answer again changes nothing. {_TOKENS}",
    permission=Permission.SESSION_MANAGE,
    payload=ResolveActionBody,
    success_type=ActionBody,
    success="The resolved action.",
    idempotent=True,
    session_token=True,
    refusals=(
        Refusal(
            "may_not_raise",
            action_rules.may_not_raise(),
            "A session token raises a limit, or a key without `key.manage` raises the daily limit of the workspace.",
            "Use a key, for the daily limit one with `key.manage`, or answer `stop`.",
        ),
        Refusal(
            "answered_differently",
            errors.answered_differently("Ada Byron with an API key “deploys”"),
            "Another answer came first.",
            "Read the action: it has the answer, and who gave it.",
        ),
        Refusal(
            "action_expired",
            errors.action_expired(),
            "Nobody answered before `expires_at`. It counts as denied.",
            "Send a new input if the call shall be made after all.",
        ),
        Refusal(
            "action_cancelled",
            errors.action_cancelled(),
            "The run was cancelled.",
            "Nothing: no run waits for the answer.",
        ),
    ),
)
async def resolve_action(request: Request, changes: Changes) -> Answer:
    action_id = request.path_id("action_id")
    return await action_service.resolve_action(changes, await request.call(ResolveActionBody), action_id)

"""Inputs and runs over HTTP."""

from quarterdeck import errors
from quarterdeck.access.model import Permission
from quarterdeck.http.incoming import Incoming
from quarterdeck.http.operation import Refusal, operation
from quarterdeck.idempotency.service import Answer
from quarterdeck.parts import Parts
from quarterdeck.runs import service
from quarterdeck.runs.model import CancelledRunBody, InputEvent, RunBody, RunPage, SubmitKindBody


@operation(
    summary="Submit a user turn to a session",
    description="Starts a run when none is active, steers the active one otherwise, and says which.",
    permission=Permission.SESSION_MANAGE,
    payload=InputEvent,
    success_type=SubmitKindBody,
    success="The input queued a new run or steered the active one. It is stored.",
    idempotent=True,
    session_token=True,
    refusals=(
        Refusal(
            "archived",
            errors.archived_session(),
            "The session is archived.",
            "Bring the session back, or talk in another.",
        ),
        Refusal(
            "contended",
            errors.contended(),
            "The active run changed twice while the input was being stored. Nothing was stored.",
            "Send it again at once. Only this conflict carries Retry-After.",
        ),
    ),
)
async def submit_input(parts: Parts, incoming: Incoming) -> Answer:
    session_id = incoming.path_id("session_id")
    return await service.submit_input(parts, await incoming.call(InputEvent), session_id)


@operation(
    summary="Show a run",
    permission=Permission.WORKSPACE_READ,
    success_type=RunBody,
    success="The run as it is now.",
    session_token=True,
)
async def get_run(parts: Parts, incoming: Incoming) -> RunBody:
    run_id = incoming.path_id("run_id")
    return await service.get_run(parts, incoming.call_without_body(), run_id)


@operation(
    summary="List the runs of a session",
    description="One page per call, newest first unless order=asc.",
    permission=Permission.WORKSPACE_READ,
    success_type=RunPage,
    success="One page. next_cursor is null on the last.",
    paged=True,
    session_token=True,
)
async def list_session_runs(parts: Parts, incoming: Incoming) -> RunPage:
    session_id, request = incoming.path_id("session_id"), incoming.page_request()
    return await service.list_session_runs(parts, incoming.call_without_body(), session_id, request)


@operation(
    summary="Cancel a run",
    description="Ends it at once, wherever it is being worked on. Cancelling one that has ended changes nothing.",
    permission=Permission.SESSION_MANAGE,
    success_type=CancelledRunBody,
    success="The run, and the inputs that it had not taken up.",
    idempotent=True,
    session_token=True,
)
async def cancel_run(parts: Parts, incoming: Incoming) -> Answer:
    run_id = incoming.path_id("run_id")
    return await service.cancel_run(parts, incoming.call_without_body(), run_id)

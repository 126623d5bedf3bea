"""Inputs and runs over HTTP."""

from quarterdeck.auth.access import Access
from quarterdeck.auth.last_used import LastUsed
from quarterdeck.changes.perform import Changes
from quarterdeck.conversations.runs import service
from quarterdeck.conversations.runs.input_batcher import InputBatcher
from quarterdeck.conversations.runs.model import CancelledRunBody, InputEvent, RunBody, RunPage, SubmitKindBody
from quarterdeck.core import errors
from quarterdeck.core.actors import Permission
from quarterdeck.core.call import Answer
from quarterdeck.http.operation import Refusal, operation
from quarterdeck.http.request import Request


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
        Refusal(
            "run_full",
            errors.run_full(),
            "The active run has as many inputs waiting as the server's settings allow. Nothing was stored.",
            "Send it again after the seconds in Retry-After, or cancel the run.",
        ),
    ),
)
async def submit_input(request: Request, access: Access, inputs: InputBatcher, last_used: LastUsed) -> Answer:
    session_id = request.path_id("session_id")
    return await service.submit_input(access, inputs, last_used, await request.call(InputEvent), session_id)


@operation(
    summary="Show a run",
    permission=Permission.WORKSPACE_READ,
    success_type=RunBody,
    success="The run as it is now.",
    session_token=True,
)
async def get_run(request: Request, access: Access) -> RunBody:
    run_id = request.path_id("run_id")
    return await service.get_run(access, request.call_without_body(), run_id)


@operation(
    summary="List the runs of a session",
    description="One page per call, newest first unless order=asc.",
    permission=Permission.WORKSPACE_READ,
    success_type=RunPage,
    success="One page. next_cursor is null on the last.",
    paged=True,
    session_token=True,
)
async def list_session_runs(request: Request, access: Access) -> RunPage:
    session_id, page = request.path_id("session_id"), request.page_request()
    return await service.list_session_runs(access, request.call_without_body(), session_id, page)


@operation(
    summary="Cancel a run",
    description="Ends it at once, wherever it is being worked on. Cancelling one that has ended changes nothing.",
    permission=Permission.SESSION_MANAGE,
    success_type=CancelledRunBody,
    success="The run, and the inputs that it had not taken up.",
    idempotent=True,
    session_token=True,
)
async def cancel_run(request: Request, changes: Changes) -> Answer:
    run_id = request.path_id("run_id")
    return await service.cancel_run(changes, request.call_without_body(), run_id)


@operation(
    summary="Withdraw or drop an input",
    description="Withdraws an input that no run has consumed; a run that is left without any input is cancelled. Drops "
    "an input whose run failed: the model no longer sees it. The log keeps the input and says that it was discarded.",
    permission=Permission.SESSION_MANAGE,
    success_status=204,
    success_type=None,
    success="The input is discarded.",
    session_token=True,
    refusals=(
        Refusal(
            "input_discarded",
            errors.input_discarded(),
            "The input was withdrawn, dropped, or discarded when its run was cancelled.",
            "Nothing: no run will consume it.",
        ),
        Refusal(
            "input_in_use",
            errors.input_in_use(),
            "A run has consumed the input, and the run is active, has succeeded or was cancelled.",
            "Cancel the run, or fork the session before the input.",
        ),
    ),
)
async def discard_input(request: Request, changes: Changes) -> Answer:
    session_id, input_id = request.path_id("session_id"), request.path_id("input_id")
    return await service.discard_input(changes, request.call_without_body(), session_id, input_id)

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
    description="Starts a run, or steers the active run if there is one. The response says which.",
    permission=Permission.SESSION_MANAGE,
    payload=InputEvent,
    success_type=SubmitKindBody,
    success="The input is stored. It queued a new run or steered the active one.",
    idempotent=True,
    session_token=True,
    refusals=(
        Refusal(
            "archived",
            errors.archived_session(),
            "The session is archived.",
            "Unarchive the session or use another one.",
        ),
        Refusal(
            "contended",
            errors.contended(),
            "The active run changed twice during the request. Nothing was stored.",
            "Retry immediately. Only this conflict has Retry-After.",
        ),
        Refusal(
            "run_full",
            errors.run_full(),
            "The active run has too many waiting inputs. Nothing was stored.",
            "Retry after the seconds in Retry-After, or cancel the run.",
        ),
    ),
)
async def submit_input(request: Request, access: Access, inputs: InputBatcher, last_used: LastUsed) -> Answer:
    session_id = request.path_id("session_id")
    return await service.submit_input(access, inputs, last_used, await request.call(InputEvent), session_id)


@operation(
    summary="Get a run",
    permission=Permission.WORKSPACE_READ,
    success_type=RunBody,
    success="The run.",
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
    success="One page. next_cursor is null on the last page.",
    paged=True,
    session_token=True,
)
async def list_session_runs(request: Request, access: Access) -> RunPage:
    session_id, page = request.path_id("session_id"), request.page_request()
    return await service.list_session_runs(access, request.call_without_body(), session_id, page)


@operation(
    summary="Cancel a run",
    description="Ends the run immediately. Cancelling an ended run changes nothing.",
    permission=Permission.SESSION_MANAGE,
    success_type=CancelledRunBody,
    success="The run, and the inputs that it had not consumed.",
    idempotent=True,
    session_token=True,
)
async def cancel_run(request: Request, changes: Changes) -> Answer:
    run_id = request.path_id("run_id")
    return await service.cancel_run(changes, request.call_without_body(), run_id)

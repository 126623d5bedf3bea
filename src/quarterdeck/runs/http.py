"""Inputs and runs over HTTP."""

from quarterdeck.auth.access import Access
from quarterdeck.auth.last_used import LastUsed
from quarterdeck.changes.perform import Changes
from quarterdeck.core import errors
from quarterdeck.core.actors import Permission
from quarterdeck.core.call import Answer
from quarterdeck.core.settings import SubmitSettings
from quarterdeck.http.operation import Refusal, operation
from quarterdeck.http.request import Request
from quarterdeck.runs import service
from quarterdeck.runs.attachments import AttachmentRules
from quarterdeck.runs.input_batcher import InputBatcher
from quarterdeck.runs.model import CancelledRunBody, InputEvent, RunBody, RunPage, SubmitKindBody


@operation(
    summary="Submit a user turn to a session",
    description="Starts a run, or steers the active run if there is one, unless `delivery` says otherwise. The "
    "response says which.",
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
        Refusal(
            "too_many_pending",
            errors.too_many_pending(),
            "The session has as many pending runs as the server's settings allow. Nothing was stored.",
            "Send it again after the seconds in Retry-After, or cancel a pending run.",
        ),
        Refusal(
            "workspace_full",
            errors.workspace_full(),
            "The attachments exceed the size or the number of files of the session's workspace. Nothing was stored.",
            "Delete files of the workspace, attach fewer, or use another session.",
        ),
    ),
)
async def submit_input(
    request: Request,
    access: Access,
    inputs: InputBatcher,
    last_used: LastUsed,
    changes: Changes,
    settings: SubmitSettings,
    attachments: AttachmentRules,
) -> Answer:
    session_id = request.path_id("session_id")
    call = await request.call(InputEvent)
    return await service.submit_input(access, inputs, last_used, changes, settings, attachments, call, session_id)


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


@operation(
    summary="Retry a run",
    description="Starts a run with the inputs of a failed or cancelled run: those that it consumed and those that its "
    "cancellation discarded. They are stored as new inputs, and their events name the run in `retried_from` "
    "and the first input in `copy_of`. The model sees each input once, and the stored answers and results of the "
    "retried run.",
    permission=Permission.SESSION_MANAGE,
    success_status=201,
    success_type=RunBody,
    success="The new run.",
    idempotent=True,
    session_token=True,
    refusals=(
        Refusal(
            "not_retryable",
            errors.not_retryable(),
            "The run has succeeded, or it has not ended.",
            "Send a new input instead.",
        ),
        Refusal(
            "another_run_active",
            errors.another_run_active(),
            "The session has an active run.",
            "Wait for its end, or cancel it.",
        ),
        Refusal(
            "nothing_to_retry",
            errors.nothing_to_retry(),
            "All inputs of the run were withdrawn or dropped.",
            "Send a new input instead.",
        ),
        Refusal(
            "too_much_to_retry",
            errors.too_much_to_retry(),
            "The run consumed more inputs, by number or by size, than may wait in one run.",
            "Send the inputs again one by one.",
        ),
        Refusal(
            "archived",
            errors.archived_session(),
            "The session is archived.",
            "Bring the session back, or talk in another.",
        ),
    ),
)
async def retry_run(request: Request, changes: Changes, settings: SubmitSettings) -> Answer:
    run_id = request.path_id("run_id")
    return await service.retry_run(changes, settings, request.call_without_body(), run_id)

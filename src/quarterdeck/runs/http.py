"""Inputs and runs over HTTP."""

from quarterdeck.http.incoming import Incoming
from quarterdeck.idempotency.service import Answer
from quarterdeck.parts import Parts
from quarterdeck.runs import service
from quarterdeck.runs.model import InputEvent, RunBody, RunPage


async def submit_input(parts: Parts, incoming: Incoming) -> Answer:
    session_id = incoming.path_id("session_id")
    return await service.submit_input(parts, await incoming.call(InputEvent), session_id)


async def get_run(parts: Parts, incoming: Incoming) -> RunBody:
    run_id = incoming.path_id("run_id")
    return await service.get_run(parts, incoming.call_without_body(), run_id)


async def list_session_runs(parts: Parts, incoming: Incoming) -> RunPage:
    session_id, request = incoming.path_id("session_id"), incoming.page_request()
    return await service.list_session_runs(parts, incoming.call_without_body(), session_id, request)


async def cancel_run(parts: Parts, incoming: Incoming) -> Answer:
    run_id = incoming.path_id("run_id")
    return await service.cancel_run(parts, incoming.call_without_body(), run_id)

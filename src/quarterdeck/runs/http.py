"""Inputs over HTTP."""

from quarterdeck.http.incoming import Incoming
from quarterdeck.idempotency.service import Answer
from quarterdeck.parts import Parts
from quarterdeck.runs import service
from quarterdeck.runs.model import InputEvent


async def submit_input(parts: Parts, incoming: Incoming) -> Answer:
    session_id = incoming.path_id("session_id")
    return await service.submit_input(parts, await incoming.call(InputEvent), session_id)

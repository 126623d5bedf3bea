"""Inputs and what became of them."""

from enum import StrEnum
from typing import Literal
from uuid import UUID

from msgspec import Struct

from quarterdeck.access.model import Credential
from quarterdeck.texts import Text


class InputEvent(Struct, frozen=True):
    text: Text
    type: Literal["input"]


class Outcome(StrEnum):
    NEW_RUN = "new_run"
    STEERED = "steered"


class SubmitKindBody(Struct, frozen=True):
    outcome: Outcome
    run_id: UUID


class Submission(Struct, frozen=True):
    """One input on its way to the database."""

    credential: Credential
    session_id: UUID
    workspace_id: UUID | None
    text: str
    input_id: UUID
    fresh_run_id: UUID
    idempotency_key: str | None
    fingerprint: bytes
    # Of its text, in UTF-8.
    bytes: int


class Verdict(StrEnum):
    ACCEPTED = "accepted"
    REPLAYED = "replayed"
    UNAUTHORIZED = "unauthorized"
    NOT_FOUND = "not_found"
    FORBIDDEN = "forbidden"
    CONFLICT = "conflict"


class Submitted(Struct, frozen=True):
    """What the database decided about one submission. `body` is the encoded SubmitKindBody."""

    verdict: Verdict
    body: bytes | None
    api_key_id: UUID | None

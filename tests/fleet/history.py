"""What the clients asked for and how they were answered. The token of an intent appears in the rows that result."""

import itertools
import json
import time
from collections import Counter
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

# Shared by all histories: several may use one database.
_NUMBERS = itertools.count(1)


class Kind(StrEnum):
    SUBMIT = "submit"
    SESSION = "session"
    KEY = "key"
    PUSH = "push"


class Answer(Struct, frozen=True):
    status: int
    body: bytes
    replayed: bool


class Intent(Struct, kw_only=True):
    """One change that a client wants, over all its attempts."""

    kind: Kind
    token: str
    # Id of the session or skill.
    target_id: str = ""
    idempotency_key: str | None = None
    by_session_token: bool = False
    # The delivery of an input. None: not sent, which means steer.
    delivery: str | None = None
    began: float = 0.0
    # No attempt is under way and none will follow.
    finished: bool = False
    answers: list[Answer] = []

    @property
    def acknowledgement(self) -> Answer | None:
        """The first answer that reports success."""
        return next((answer for answer in self.answers if answer.status in (200, 201)), None)


class SentAnswer(Struct, kw_only=True):
    """One answer to an action, over all its attempts."""

    token: str
    session_id: str
    action_id: str
    resolution: dict[str, Any]
    idempotency_key: str | None = None
    # 200 and 409 only.
    answers: list[Answer] = []


class Attempt(Struct, frozen=True):
    """One HTTP request. `outcome` is the status, or the name of the transport error."""

    api: str
    outcome: str
    began: float
    ended: float
    # A success, or the error envelope with a known code. False for a transport error.
    is_proper: bool

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    @property
    def is_failure(self) -> bool:
        """A transport error or a 5xx. The load also provokes refusals (401, 409), which are no failures."""
        return not self.outcome.isdigit() or self.outcome.startswith("5")


class History:
    def __init__(self) -> None:
        self.intents: dict[str, Intent] = {}
        self.sent_answers: list[SentAnswer] = []
        self.attempts: list[Attempt] = []
        # Runs that a client asked to cancel, and runs whose cancellation was acknowledged.
        self.cancel_requested: set[str] = set()
        self.cancelled: set[str] = set()
        self.violations: list[str] = []

    def new_intent(
        self,
        kind: Kind,
        *,
        target_id: str = "",
        idempotency_key: str | None = None,
        by_session_token: bool = False,
        delivery: str | None = None,
    ) -> Intent:
        token = f"{kind[:2]}-{next(_NUMBERS):07d}"
        intent = Intent(
            kind=kind,
            token=token,
            target_id=target_id,
            idempotency_key=idempotency_key,
            by_session_token=by_session_token,
            delivery=delivery,
            began=time.monotonic(),
            answers=[],
        )
        self.intents[token] = intent
        return intent

    def new_answer(
        self, session_id: str, action_id: str, resolution: dict[str, Any], idempotency_key: str | None
    ) -> SentAnswer:
        sent = SentAnswer(
            token=f"an-{next(_NUMBERS):07d}",
            session_id=session_id,
            action_id=action_id,
            resolution=resolution,
            idempotency_key=idempotency_key,
            answers=[],
        )
        self.sent_answers.append(sent)
        return sent

    def add_violation(self, text: str) -> None:
        if text not in self.violations:
            self.violations.append(text)

    def outcomes(self) -> dict[str, int]:
        return dict(Counter(attempt.outcome for attempt in self.attempts).most_common())

    def slowest_seconds(self) -> float:
        return max((attempt.seconds for attempt in self.attempts), default=0.0)

    def acknowledged(self) -> int:
        return sum(intent.acknowledgement is not None for intent in self.intents.values())

    def acknowledged_answers(self) -> int:
        return sum(any(answer.status == 200 for answer in sent.answers) for sent in self.sent_answers)

    def write(self, path: Path) -> None:
        with path.open("w") as file:
            for sent in (*self.intents.values(), *self.sent_answers):
                file.write(json.dumps(msgspec.to_builtins(sent), default=str) + "\n")

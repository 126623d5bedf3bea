"""What clients wanted and what they were told. Each intent has a token that is found again in what came of it."""

import itertools
import json
import time
from collections import Counter
from enum import StrEnum
from pathlib import Path

import msgspec
from msgspec import Struct


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
    """One thing that a client wants done, over as many tries as it takes."""

    kind: Kind
    token: str
    # The session or skill that it is about.
    about: str = ""
    idempotency_key: str | None = None
    by_token: bool = False
    begun: float = 0.0
    # No try is under way and none will follow.
    over: bool = False
    answers: list[Answer] = []

    @property
    def told(self) -> Answer | None:
        """The first answer that says it is done."""
        return next((answer for answer in self.answers if answer.status in (200, 201)), None)


class History:
    def __init__(self) -> None:
        self.intents: dict[str, Intent] = {}
        self.statuses: Counter[str] = Counter()
        self.slowest_seconds = 0.0
        # Runs that somebody asked to cancel, and those that were said to be.
        self.cancelling: set[str] = set()
        self.cancelled: set[str] = set()
        self.violations: list[str] = []
        self._numbers = itertools.count(1)

    def intent(self, kind: Kind, **fields: object) -> Intent:
        token = f"{kind[:2]}-{next(self._numbers):07d}"
        intent = msgspec.convert(
            {"kind": kind, "token": token, "begun": time.monotonic(), **fields}, Intent, from_attributes=True
        )
        self.intents[token] = intent
        return intent

    def count(self, what: str, seconds: float) -> None:
        self.statuses[what] += 1
        self.slowest_seconds = max(self.slowest_seconds, seconds)

    def violated(self, what: str) -> None:
        if what not in self.violations:
            self.violations.append(what)

    def acknowledged(self) -> int:
        return sum(intent.told is not None for intent in self.intents.values())

    def write(self, path: Path) -> None:
        with path.open("w") as file:
            for intent in self.intents.values():
                file.write(json.dumps(msgspec.to_builtins(intent), default=str) + "\n")

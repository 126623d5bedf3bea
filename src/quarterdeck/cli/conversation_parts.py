"""What a conversation in `qd chat` consists of: blocks to show, queued inputs, and text that is still being written."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any
from uuid import UUID

from msgspec import Struct

from quarterdeck.cli.output import size
from quarterdeck.client.models import Delivery

# More than the largest screen shows.
_LIVE_END_CHARACTERS = 64 * 1024


class Kind(StrEnum):
    INPUT = "input"
    ANSWER = "answer"
    TOOL = "tool"
    # What a command has printed.
    OUTPUT = "output"
    DIFF = "diff"
    NOTE = "note"
    WARNING = "warning"
    # A state change. A terminal shows the state itself; other outputs print a line.
    PROGRESS = "progress"


class Block(Struct, frozen=True):
    kind: Kind
    text: str


def cut_off_text(data: Mapping[str, Any]) -> str | None:
    """Of an event message. None: the answer is complete."""
    match data.get("cut_off"):
        case None:
            return None
        case "length":
            return "Cut off: the answer reached the limit of output tokens."
        case _:
            return "Cut off: the content filter of the provider ended the answer."


def ignored_text(data: Mapping[str, Any]) -> str:
    """Of an event settings.ignored."""
    return f"Not sent, because {data.get('model', '')} does not take it: {', '.join(data.get('settings') or [])}."


class Stage(StrEnum):
    """How far an input has come. The values are shown to the user."""

    SENDING = "Sending"
    STARTED = "Started a run"
    STEERED = "Steered the run"
    MOVED = "Moved to the next run"
    PENDING = "Queued behind the current run"


class Attached(Struct, frozen=True):
    """A file of an input."""

    name: str
    bytes: int

    def __str__(self) -> str:
        return f"{self.name} ({size(self.bytes)})"


# Compared by identity: texts can be long, and two inputs can have the same.
class QueuedInput(Struct, eq=False):
    """An input that no run has read yet."""

    text: str
    # Numbers the inputs of this client. None: sent by another client, or earlier.
    number: int | None = None
    from_another_client: bool = False
    # None until the log has the input.
    input_id: str | None = None
    run_id: UUID | None = None
    stage: Stage = Stage.SENDING
    delivery: Delivery = Delivery.STEER
    attachments: list[Attached] = []


class LiveText:
    """The text of the current answer so far. Adding a piece and reading the end do not copy the whole."""

    def __init__(self) -> None:
        self.length = 0
        self._pieces: list[str] = []
        self._end = ""

    def __str__(self) -> str:
        return "".join(self._pieces)

    def add(self, piece: str) -> None:
        self._pieces.append(piece)
        self.length += len(piece)
        self._end += piece
        if len(self._end) > 2 * _LIVE_END_CHARACTERS:
            self._end = self._end[-_LIVE_END_CHARACTERS:]

    def after(self, position: int) -> str:
        """The text from a position on, or as much of its end as is at hand."""
        return self._end[max(0, position - (self.length - len(self._end))) :]

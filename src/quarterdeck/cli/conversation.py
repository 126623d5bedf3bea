"""A session as a person in it sees it: what was said, what waits to be taken up, what runs. What happens goes in, what
is to be shown comes out. No input or output here, and no clock."""

from collections.abc import Callable
from enum import StrEnum
from typing import Any
from uuid import UUID

import msgspec
from msgspec import Struct

from quarterdeck.client.models import Delta, Event
from quarterdeck.conversations.events.model import EventType
from quarterdeck.conversations.runs.model import Outcome

# Long enough to press a key twice, short enough that two wishes to cancel are not taken for one to leave.
_TWICE_SECONDS = 2.0


class Kind(StrEnum):
    INPUT = "input"
    ANSWER = "answer"
    TOOL = "tool"
    NOTE = "note"
    TROUBLE = "trouble"
    # What a screen shows as the state of something, until the state changes; other outputs need a line for it.
    PROGRESS = "progress"


class Block(Struct, frozen=True):
    kind: Kind
    text: str


class Stage(StrEnum):
    """How far an input has come, in the words that are shown."""

    SENDING = "sending"
    STARTED = "started a run"
    STEERED = "steered the run"
    HANDED_ON = "handed to the next run"


class Waiting(Struct):
    """An input that no run has taken up yet."""

    text: str
    # Which of ours it is. None: it is another's, or from before.
    number: int | None = None
    sent_elsewhere: bool = False
    # Not known before the log has told it.
    input_id: str | None = None
    run_id: UUID | None = None
    stage: Stage = Stage.SENDING


class Cancel(Struct, frozen=True):
    run_id: UUID


class Leave(Struct, frozen=True):
    pass


class Stay(Struct, frozen=True):
    reason: str


class Conversation:
    def __init__(self) -> None:
        self.active_run: UUID | None = None
        self.waiting: list[Waiting] = []
        # The id of the last entry of the log that was taken in.
        self.position = 0
        self.connected = True
        self.last_end: str | None = None
        self._calls: dict[str, str] = {}
        self._attempt = 0
        # Whether what the log tells happens now, and not before we came.
        self._live = False
        self._streamed = ""
        self._missed_text = False
        self._numbers = 0
        self._interrupted_at: float | None = None
        self._on: dict[str, Callable[[Event], list[Block]]] = {
            EventType.INPUT_ACCEPTED: self._input_accepted,
            EventType.INPUT_CONSUMED: self._input_consumed,
            EventType.INPUT_DISCARDED: self._input_discarded,
            EventType.RUN_STARTED: self._run_started,
            EventType.RUN_REQUEUED: self._run_requeued,
            EventType.MESSAGE: self._message,
            EventType.TOOL_CALL: self._tool_call,
            EventType.TOOL_RESULT: self._tool_result,
            EventType.CONTEXT_TRIMMED: self._context_trimmed,
            EventType.RUN_SUCCEEDED: self._run_succeeded,
            EventType.RUN_FAILED: self._run_failed,
            EventType.RUN_CANCELLED: self._run_cancelled,
        }

    @property
    def idle(self) -> bool:
        return self.active_run is None and not self.waiting

    @property
    def streaming(self) -> str:
        """Text of the answer that is being written. The stored answer takes its place."""
        return f"… {self._streamed}" if self._streamed and self._missed_text else self._streamed

    @property
    def unsent(self) -> list[Waiting]:
        return [one for one in self.waiting if one.stage is Stage.SENDING]

    @property
    def calls(self) -> list[str]:
        """Tools at work."""
        return list(self._calls.values())

    # --- what the person does ---

    def send(self, text: str) -> int:
        self._numbers += 1
        self.waiting.append(Waiting(text, self._numbers))
        return self._numbers

    def answered(self, number: int, outcome: Outcome, run_id: UUID) -> list[Block]:
        """The server has accepted an input. The log may have told so already, and more."""
        found = self._numbered(number)
        if found is None or found.stage is not Stage.SENDING:
            return []
        found.run_id = run_id
        self.active_run = run_id
        return self._accepted(found, Stage.STARTED if outcome is Outcome.NEW_RUN else Stage.STEERED)

    def refused(self, number: int, reason: str) -> list[Block]:
        found = self._numbered(number)
        if found is None:
            return []
        self.waiting.remove(found)
        return [Block(Kind.INPUT, found.text), Block(Kind.TROUBLE, f"not accepted: {reason}")]

    def interrupted(self, now: float) -> Cancel | Stay | Leave:
        """Ctrl-C. `now` is in seconds, of a clock that never goes back."""
        before, self._interrupted_at = self._interrupted_at, now
        if before is not None and now - before <= _TWICE_SECONDS:
            return Leave()
        if self.active_run is not None:
            return Cancel(self.active_run)
        if self.unsent:
            return Stay(f"{_count(len(self.unsent), 'input')} not sent yet. Ctrl-C again leaves.")
        return Leave()

    # --- what the connection does ---

    def lost(self, reason: str) -> list[Block]:
        self.connected = False
        return [Block(Kind.TROUBLE, f"Connection lost, trying again. {reason}")]

    def back(self) -> list[Block]:
        self.connected = True
        return [Block(Kind.NOTE, "Connected again.")]

    def resumed(self) -> None:
        """A new stream has begun. What was written meanwhile is missing from the live text."""
        self._live = True
        self._streamed, self._missed_text = "", self.active_run is not None

    # --- what the log tells ---

    def delta(self, delta: Delta) -> None:
        if delta.attempt < self._attempt or delta.run_id != self.active_run:
            return
        self._streamed += delta.text

    def event(self, event: Event) -> list[Block]:
        if event.id <= self.position:
            return []
        self.position = event.id
        take = self._on.get(event.type)
        return [] if take is None else take(event)

    def _input_accepted(self, event: Event) -> list[Block]:
        text = str(event.data.get("text", ""))
        found = next((one for one in self.waiting if self._may_be(one, text, event.run_id)), None)
        if found is None:
            found = Waiting(text, sent_elsewhere=self._live)
            self.waiting.append(found)
        found.input_id = event.data.get("input_id")
        found.run_id = event.run_id
        stage = Stage.STEERED if event.run_id == self.active_run else Stage.STARTED
        self.active_run = event.run_id
        return self._accepted(found, stage) if found.stage is Stage.SENDING else []

    @staticmethod
    def _may_be(one: Waiting, text: str, run_id: UUID | None) -> bool:
        """Whether an entry of the log is about an input of ours. Ours go out one by one, so the first is meant."""
        return (
            one.number is not None
            and one.input_id is None
            and one.text == text
            and (one.run_id is None or one.run_id == run_id)
        )

    def _input_consumed(self, event: Event) -> list[Block]:
        found = self._identified(event)
        if found is None:
            return []
        self.waiting.remove(found)
        step = event.data.get("step")
        where = "" if step is None else f" at step {step}"
        elsewhere = "sent from elsewhere · " if found.sent_elsewhere else ""
        return [
            Block(Kind.INPUT, found.text),
            Block(Kind.NOTE, f"{elsewhere}{found.stage} · taken up{where}"),
        ]

    def _input_discarded(self, event: Event) -> list[Block]:
        found = self._identified(event)
        if found is None:
            return []
        self.waiting.remove(found)
        return [Block(Kind.INPUT, found.text), Block(Kind.TROUBLE, f"discarded: {event.data.get('reason', '')}")]

    def _run_started(self, event: Event) -> list[Block]:
        self.active_run = event.run_id
        self._attempt = event.data.get("attempt", 0)
        self._forget_streamed()
        return []

    def _run_requeued(self, event: Event) -> list[Block]:
        # What it was writing is asked for again.
        self._forget_streamed()
        return [Block(Kind.NOTE, f"The run goes on elsewhere: {event.data.get('reason', '')}")]

    def _message(self, event: Event) -> list[Block]:
        self._forget_streamed()
        self.active_run = event.run_id
        text = str(event.data.get("text", ""))
        return [Block(Kind.ANSWER, text)] if text.strip() else []

    def _tool_call(self, event: Event) -> list[Block]:
        self._calls[str(event.data.get("call_id"))] = call_text(event.data)
        return []

    def _tool_result(self, event: Event) -> list[Block]:
        call = self._calls.pop(str(event.data.get("call_id")), str(event.data.get("name", "")))
        return [Block(Kind.TOOL, f"{call} → {event.data.get('text', '')}")]

    def _context_trimmed(self, event: Event) -> list[Block]:
        dropped = _count(event.data.get("dropped_turns", 0), "earlier turn")
        return [Block(Kind.NOTE, f"{dropped} no longer fit into the model.")]

    def _run_succeeded(self, event: Event) -> list[Block]:
        return [*self._ended(event), Block(Kind.PROGRESS, "The run has ended.")]

    def _run_failed(self, event: Event) -> list[Block]:
        blocks = [*self._ended(event), Block(Kind.TROUBLE, f"The run failed: {event.data.get('reason', '')}")]
        if "next_run_id" in event.data:
            self.active_run = UUID(event.data["next_run_id"])
            handed_on = [one for one in self.waiting if one.run_id == event.run_id]
            for one in handed_on:
                one.run_id, one.stage = self.active_run, Stage.HANDED_ON
            blocks.append(Block(Kind.NOTE, f"{_count(len(handed_on), 'input')} handed to the next run."))
        return blocks

    def _run_cancelled(self, event: Event) -> list[Block]:
        return [*self._ended(event), Block(Kind.TROUBLE, "The run was cancelled.")]

    def _ended(self, event: Event) -> list[Block]:
        """What the run leaves unfinished is shown as such: it is stored nowhere."""
        blocks = [Block(Kind.TOOL, f"{call} → no result") for call in self._calls.values()]
        if self._streamed.strip():
            blocks += [Block(Kind.ANSWER, self.streaming), Block(Kind.NOTE, "cut off here, and not kept")]
        self._forget_streamed()
        self._calls.clear()
        self._attempt = 0
        self.active_run = None
        self.last_end = event.type
        return blocks

    def _forget_streamed(self) -> None:
        self._streamed, self._missed_text = "", False

    def _accepted(self, found: Waiting, stage: Stage) -> list[Block]:
        found.stage = stage
        return [Block(Kind.PROGRESS, f"accepted, {stage}: {found.text}")]

    def _numbered(self, number: int) -> Waiting | None:
        return next((one for one in self.waiting if one.number == number), None)

    def _identified(self, event: Event) -> Waiting | None:
        input_id = event.data.get("input_id")
        return next((one for one in self.waiting if one.input_id == input_id), None)


def call_text(data: dict[str, Any]) -> str:
    arguments = data.get("arguments") or {}
    return f"{data.get('name', '')}({msgspec.json.encode(arguments).decode() if arguments else ''})"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"

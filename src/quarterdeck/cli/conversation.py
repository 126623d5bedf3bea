"""The state of a conversation as `qd chat` shows it: messages, queued inputs, the active run. Takes events and returns
blocks to show. No I/O and no clock."""

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from io import StringIO
from math import ceil
from typing import Any
from uuid import UUID

from msgspec import Struct

from quarterdeck.cli.action_text import answered, call_text, required, resolve_command
from quarterdeck.cli.chat_actions import OpenActions
from quarterdeck.cli.output import count_text, shortened, size
from quarterdeck.client.models import Delivery, Delta, Event, EventType, ModelRetry, Outcome


class BlockKind(StrEnum):
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


# The whole reasoning is in the export of the session.
_REASONING_CHARACTERS = 100


class Block(Struct, frozen=True):
    kind: BlockKind
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


def reasoning_line(data: Mapping[str, Any]) -> str | None:
    """The beginning of the reasoning before an answer. None: there is none."""
    line = " ".join(str(data.get("reasoning", "")).split())
    more = len(line) > _REASONING_CHARACTERS
    return f"Reasoning: {line[:_REASONING_CHARACTERS]}{'…' * more}" if line else None


def sources_text(data: Mapping[str, Any]) -> str | None:
    """What an answer refers to, a line each. None: nothing."""
    lines = [" ".join(filter(None, (one.get("title"), one.get("url")))) for one in data.get("sources") or []]
    return "\n".join(["Sources:", *(f"- {line}" for line in lines)]) if lines else None


def _trimmed_text(data: Mapping[str, Any]) -> str:
    dropped, cut, omitted = (data.get(name, 0) for name in ("dropped_turns", "cut_turns", "omitted_files"))
    notes = [_left_out_text(dropped)] if dropped or not (cut or omitted) else []
    notes += [f"{count_text(cut, 'text')} cut to fit in the model's context."] if cut else []
    notes += [f"{count_text(omitted, 'file')} left out to fit in the model's context."] if omitted else []
    return " ".join(notes)


def _left_out_text(turns: int) -> str:
    return f"{count_text(turns, 'earlier turn')} no longer fit in the model's context."


def _compacted_text(data: Mapping[str, Any]) -> str:
    if not data.get("summary"):
        return _left_out_text(data.get("dropped_turns", 0))
    return f"{count_text(data.get('dropped_turns', 0), 'earlier turn')} summarised to fit in the model's context."


# Events that chat and watch show in the same words.
NOTICES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    EventType.CONTEXT_TRIMMED: _trimmed_text,
    EventType.CONTEXT_COMPACTED: _compacted_text,
    EventType.SETTINGS_IGNORED: lambda data: (
        f"Not sent, because {data.get('model', '')} does not take it: {', '.join(data.get('settings') or [])}."
    ),
    EventType.MODEL_SWITCHED: lambda data: (
        f"Switched from {data.get('from', '')} to {data.get('to', '')}: {data.get('reason', '')}"
    ),
    EventType.MCP_UNAVAILABLE: lambda data: (
        f"The tools of {data.get('name', '')} are not available: {data.get('reason', '')}"
    ),
}
_WARNINGS = (EventType.SETTINGS_IGNORED, EventType.MODEL_SWITCHED, EventType.MCP_UNAVAILABLE)


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
    from_another_client: bool = False
    # None until the log has the input.
    input_id: str | None = None
    run_id: UUID | None = None
    stage: Stage = Stage.SENDING
    delivery: Delivery = Delivery.STEER
    attachments: list[Attached] = []


class LiveText(StringIO):
    """The text of the current answer so far. Adding a piece and reading the end do not copy the whole."""

    def __str__(self) -> str:
        return self.getvalue()

    @property
    def length(self) -> int:
        return self.tell()

    def after(self, position: int) -> str:
        """The text from a position on."""
        self.seek(max(0, position))
        return self.read()


_MAX_ACTION_CHARACTERS = 200
_DIFF_TOOLS = ("edit_file", "write_file")
_HUNK = re.compile(r"^@@ -", re.MULTILINE)


def is_diff(tool: str, text: str) -> bool:
    return tool in _DIFF_TOOLS and _HUNK.search(text) is not None


def call_line(tool: str, arguments: Mapping[str, Any] | None) -> str:
    """A call in one line: of a command the command, of a change of a file its path."""
    given = arguments if isinstance(arguments, Mapping) else {}
    if tool == "bash" and isinstance(given.get("command"), str):
        return f"bash $ {given['command']}"
    if tool in _DIFF_TOOLS and isinstance(given.get("path"), str):
        return f"{tool} {given['path']}"
    return call_text(tool, arguments)


# A second Ctrl-C within this time quits. Later, it cancels again.
_QUIT_SECONDS = 2.0


class CancelRun(Struct, frozen=True):
    run_id: UUID


class Quit(Struct, frozen=True):
    pass


class Stay(Struct, frozen=True):
    reason: str


class Conversation:
    def __init__(self) -> None:
        self.active_run: UUID | None = None
        # Runs that wait for the end of the active one, oldest first.
        self._pending_runs: list[UUID] = []
        self.queued: list[QueuedInput] = []
        # The id of the last event that was handled.
        self.position = 0
        self.is_connected = True
        self.last_end: str | None = None
        # What the active run waits for.
        self.actions = OpenActions()
        self._calls: dict[str, str] = {}
        self._attempt = 0
        # False while earlier events are read.
        self._is_live = False
        # The live text of the current answer. The stored answer replaces it.
        self.live_text = LiveText()
        # What running calls have printed, by the ID of the call. The stored result replaces it.
        self.live_output: dict[str, LiveText] = {}
        # Files that are attached to the next message.
        self.attachments: dict[UUID, Attached] = {}
        # How far uploads are, in words.
        self.uploads: dict[str, str] = {}
        # Inputs of this client that the log does not have yet.
        self._unlogged: list[QueuedInput] = []
        self._interrupted_at: float | None = None
        # Whether Ctrl-C was pressed since the last message, with nothing to cancel.
        self._has_asked_to_quit = False
        self._handlers: dict[str, Callable[[Event], list[Block]]] = {
            EventType.INPUT_ACCEPTED: self._input_accepted,
            EventType.INPUT_CONSUMED: self._input_consumed,
            EventType.INPUT_DISCARDED: self._input_discarded,
            EventType.RUN_STARTED: self._run_started,
            EventType.RUN_REQUEUED: self._run_requeued,
            EventType.MESSAGE: self._message,
            EventType.TOOL_CALL: self._tool_call,
            EventType.TOOL_RESULT: self._tool_result,
            EventType.ACTION_REQUIRED: self._action_required,
            EventType.ACTION_RESOLVED: self._action_resolved,
            EventType.NOTE: self._note,
            **dict.fromkeys(NOTICES, self._notice),
            EventType.RUN_SUCCEEDED: self._run_succeeded,
            EventType.RUN_FAILED: self._run_failed,
            EventType.RUN_CANCELLED: self._run_cancelled,
        }

    @property
    def is_idle(self) -> bool:
        return self.active_run is None and not self.queued

    @property
    def unsent(self) -> list[QueuedInput]:
        return [one for one in self._unlogged if one.stage is Stage.SENDING]

    @property
    def calls(self) -> list[str]:
        """Tool calls without a result yet."""
        return list(self._calls.values())

    # --- actions of the user ---

    def send(self, text: str, delivery: Delivery = Delivery.STEER) -> QueuedInput:
        self._interrupted_at, self._has_asked_to_quit = None, False
        sent = QueuedInput(text, delivery=delivery, attachments=list(self.attachments.values()))
        self.attachments = {}
        self.queued.append(sent)
        self._unlogged.append(sent)
        return sent

    def accepted(self, sent: QueuedInput, outcome: Outcome, run_id: UUID) -> list[Block]:
        """The server has accepted an input. The log may have shown that, and more, already."""
        if sent not in self.unsent:
            return []
        sent.run_id = run_id
        return self._set_stage(sent, self._accept(run_id, sent.delivery, steered=outcome is Outcome.STEERED))

    def rejected(self, sent: QueuedInput, reason: str) -> list[Block]:
        if sent not in self._unlogged:
            return []
        self.queued.remove(sent)
        self._unlogged.remove(sent)
        return [*input_blocks(sent), Block(BlockKind.WARNING, f"Not accepted: {reason}")]

    def interrupted(self, now: float) -> CancelRun | Stay | Quit:
        """Ctrl-C. `now` is the monotonic clock in seconds."""
        before, self._interrupted_at = self._interrupted_at, now
        if before is not None and now - before <= _QUIT_SECONDS:
            return Quit()
        # Between the end of a run and the start of the next one, the oldest pending run is about to start.
        run_id = self.active_run or next(iter(self._pending_runs), None)
        if run_id is not None:
            return CancelRun(run_id)
        if self.unsent:
            return Stay(f"{count_text(len(self.unsent), 'message')} not sent yet. Press Ctrl-C again to quit.")
        if self._has_asked_to_quit:
            return Quit()
        self._has_asked_to_quit = True
        return Stay("Press Ctrl-C again to quit.")

    # --- the connection ---

    def connection_lost(self, reason: str) -> list[Block]:
        self.is_connected = False
        return [Block(BlockKind.WARNING, f"Connection lost. Reconnecting… {reason}")]

    def reconnected(self) -> list[Block]:
        self.is_connected = True
        return [Block(BlockKind.NOTE, "Reconnected.")]

    def stream_started(self) -> None:
        """A new stream sends live text from its beginning."""
        self._is_live = True
        self._clear_live_text()

    # --- the log ---

    def delta(self, delta: Delta) -> None:
        if delta.attempt < self._attempt or delta.run_id != self.active_run:
            return
        is_beginning = delta.offset == 0
        if delta.call_id is None:
            self.live_text = LiveText() if is_beginning else self.live_text
            self.live_text.write(delta.text)
        elif delta.call_id in self._calls:
            if is_beginning or delta.call_id not in self.live_output:
                self.live_output[delta.call_id] = LiveText()
            self.live_output[delta.call_id].write(delta.text)

    def retried(self, retry: ModelRetry) -> list[Block]:
        """The next request writes the answer from its beginning."""
        if retry.run_id != self.active_run:
            return []
        self._clear_live_text()
        return [Block(BlockKind.NOTE, retry_text(retry))]

    def event(self, event: Event) -> list[Block]:
        if event.id <= self.position:
            return []
        self.position = event.id
        handle = self._handlers.get(event.type)
        return [] if handle is None else handle(event)

    def _input_accepted(self, event: Event) -> list[Block]:
        text = str(event.data.get("text", ""))
        found = next((one for one in self._unlogged if self._is_ours(one, text, event.run_id)), None)
        if found is None:
            found = QueuedInput(text, from_another_client=self._is_live)
            self.queued.append(found)
        else:
            self._unlogged.remove(found)
        found.input_id = event.data.get("input_id")
        found.attachments = attached(event.data)
        found.run_id = event.run_id
        stage = self._accept(event.run_id, event.data.get("delivery"), steered=event.run_id == self.active_run)
        return self._set_stage(found, stage) if found.stage is Stage.SENDING else []

    def _accept(self, run_id: UUID | None, delivery: str | None, *, steered: bool) -> Stage:
        """An input was accepted for this run, which becomes the active one or waits for its end."""
        waits = self.active_run not in (None, run_id) or bool(self._pending_runs)
        if run_id is not None and delivery == Delivery.QUEUE and waits:
            if run_id not in self._pending_runs:
                self._pending_runs.append(run_id)
            return Stage.PENDING
        self.active_run = run_id
        return Stage.STEERED if steered else Stage.STARTED

    @staticmethod
    def _is_ours(one: QueuedInput, text: str, run_id: UUID | None) -> bool:
        """Whether an event is about this input. Ours are sent one after the other, so the first match is the one."""
        return one.text == text and (one.run_id is None or one.run_id == run_id)

    def _input_consumed(self, event: Event) -> list[Block]:
        found = self._by_input_id(event)
        if found is None:
            return []
        self.queued.remove(found)
        step = event.data.get("step")
        read = "Read" if step is None else f"Read at step {step}"
        origin = "Sent from another client · " if found.from_another_client else ""
        return [*input_blocks(found), Block(BlockKind.NOTE, f"{origin}{found.stage} · {read}")]

    def _input_discarded(self, event: Event) -> list[Block]:
        found = self._by_input_id(event)
        if found is None:
            return []
        self.queued.remove(found)
        return [*input_blocks(found), Block(BlockKind.WARNING, f"Discarded: {event.data.get('reason', '')}")]

    def _run_started(self, event: Event) -> list[Block]:
        self.active_run = event.run_id
        if event.run_id in self._pending_runs:
            self._pending_runs.remove(event.run_id)
            for one in self.queued:
                if one.run_id == event.run_id:
                    one.stage = Stage.STARTED
        self._attempt = event.data.get("attempt", 0)
        self._clear_live_text()
        return []

    def _run_requeued(self, event: Event) -> list[Block]:
        # The next worker asks the model again.
        self._clear_live_text()
        return [Block(BlockKind.NOTE, f"The run moved to another worker: {event.data.get('reason', '')}")]

    def _message(self, event: Event) -> list[Block]:
        self._clear_live_text()
        self.active_run = event.run_id
        text, cut_off = str(event.data.get("text", "")), cut_off_text(event.data)
        answer = [Block(BlockKind.ANSWER, text)] if text.strip() else []
        reasoning, sources = reasoning_line(event.data), sources_text(event.data)
        return [
            *([Block(BlockKind.NOTE, reasoning)] if reasoning else []),
            *answer,
            *([Block(BlockKind.NOTE, sources)] if sources else []),
            *([Block(BlockKind.WARNING, cut_off)] if cut_off else []),
        ]

    def _tool_call(self, event: Event) -> list[Block]:
        call = call_line(str(event.data.get("name", "")), event.data.get("arguments"))
        self._calls[str(event.data.get("call_id"))] = call
        return []

    def _tool_result(self, event: Event) -> list[Block]:
        call_id, tool = str(event.data.get("call_id")), str(event.data.get("name", ""))
        call, text = self._calls.pop(call_id, tool), str(event.data.get("text", ""))
        self.live_output.pop(call_id, None)
        if tool == "bash":
            return [Block(BlockKind.TOOL, call), Block(BlockKind.OUTPUT, text)]
        if is_diff(tool, text):
            return [Block(BlockKind.TOOL, call), Block(BlockKind.DIFF, text)]
        return [Block(BlockKind.TOOL, f"{call} → {text}"), *_image_blocks(event.data)]

    def _action_required(self, event: Event) -> list[Block]:
        self.active_run = event.run_id
        self.actions.add(event.data)
        return _waiting_blocks(event.data)

    def waiting_blocks(self) -> list[Block]:
        return [block for data in self.actions for block in _waiting_blocks(data)]

    def _action_resolved(self, event: Event) -> list[Block]:
        data = self.actions.remove(event.data)
        return [
            Block(
                BlockKind.NOTE,
                f"{shortened(required(data or event.data), _MAX_ACTION_CHARACTERS)} → {answered(event.data)}",
            )
        ]

    def _note(self, event: Event) -> list[Block]:
        return [Block(BlockKind.NOTE, f"Note: {event.data.get('text', '')}")]

    def _notice(self, event: Event) -> list[Block]:
        kind = BlockKind.WARNING if event.type in _WARNINGS else BlockKind.NOTE
        if event.type == EventType.MODEL_SWITCHED:
            # The other model writes the answer from its beginning.
            self._clear_live_text()
        return [Block(kind, NOTICES[event.type](event.data))]

    def _run_succeeded(self, event: Event) -> list[Block]:
        return [*self._end_run(event), Block(BlockKind.PROGRESS, "Completed.")]

    def _run_failed(self, event: Event) -> list[Block]:
        blocks = [*self._end_run(event), Block(BlockKind.WARNING, f"Run failed: {event.data.get('reason', '')}")]
        if "next_run_id" in event.data:
            self.active_run = UUID(event.data["next_run_id"])
            moved = [one for one in self.queued if one.run_id == event.run_id]
            for one in moved:
                one.run_id, one.stage = self.active_run, Stage.MOVED
            blocks.append(Block(BlockKind.NOTE, f"{count_text(len(moved), 'message')} moved to the next run."))
        return blocks

    def _run_cancelled(self, event: Event) -> list[Block]:
        if event.run_id in self._pending_runs:
            self._pending_runs.remove(event.run_id)
            return [Block(BlockKind.WARNING, "Pending run cancelled.")]
        return [*self._end_run(event), Block(BlockKind.WARNING, "Run cancelled.")]

    def _end_run(self, event: Event) -> list[Block]:
        """Unfinished text and tool calls are shown once more, because the log does not have them."""
        blocks: list[Block] = []
        for call_id, call in self._calls.items():
            blocks.append(Block(BlockKind.TOOL, f"{call} → no result"))
            if call_id in self.live_output:
                blocks.append(Block(BlockKind.OUTPUT, str(self.live_output[call_id])))
        if (partial := str(self.live_text)).strip():
            blocks += [Block(BlockKind.ANSWER, partial), Block(BlockKind.NOTE, "Stopped; partial text not saved")]
        self._clear_live_text()
        self._calls.clear()
        self.actions.clear()
        self._attempt = 0
        self.active_run = None
        self.last_end = event.type
        return blocks

    def _clear_live_text(self) -> None:
        self.live_text = LiveText()
        self.live_output.clear()

    def _set_stage(self, found: QueuedInput, stage: Stage) -> list[Block]:
        found.stage = stage
        return [Block(BlockKind.PROGRESS, f"{stage}: {found.text}")]

    def _by_input_id(self, event: Event) -> QueuedInput | None:
        input_id = event.data.get("input_id")
        return next((one for one in self.queued if one.input_id == input_id), None)


def input_blocks(one: QueuedInput) -> list[Block]:
    """An input and its files."""
    files = ", ".join(map(str, one.attachments))
    return [Block(BlockKind.INPUT, one.text), *([Block(BlockKind.NOTE, f"Attached: {files}")] if files else [])]


def retry_text(retry: ModelRetry) -> str:
    return f"{retry.reason} Trying again in {ceil(retry.retry_in_seconds)} s (attempt {retry.attempt})."


def attached(data: Mapping[str, Any]) -> list[Attached]:
    """The files of the event input.accepted."""
    return [Attached(str(file.get("name", "")), int(file.get("bytes", 0))) for file in data.get("attachments") or []]


def _image_blocks(data: Mapping[str, Any]) -> list[Block]:
    """The images of a tool result, which a terminal cannot show."""
    images = [f"{one.get('media_type', '')} ({size(int(one.get('bytes', 0)))})" for one in data.get("images") or []]
    return (
        [Block(BlockKind.NOTE, f"{'Image' if len(images) == 1 else 'Images'}: {', '.join(images)}")] if images else []
    )


def _waiting_blocks(data: Mapping[str, Any]) -> list[Block]:
    """A terminal shows the action itself."""
    return [
        Block(BlockKind.PROGRESS, required(data)),
        Block(BlockKind.PROGRESS, f"Answer with: {resolve_command(data)}"),
    ]

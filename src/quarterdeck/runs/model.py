"""Inputs and runs."""

from collections.abc import Hashable
from enum import StrEnum
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from quarterdeck.core.actors import Credential
from quarterdeck.core.example_ids import AGENT, EVENING, RUN, SESSION
from quarterdeck.core.text_types import Moment, Text
from quarterdeck.models.model import Attachment, ModelOptions
from quarterdeck.sandbox.model import SandboxOptions
from quarterdeck.tools.model import ToolSpec

# Counted for each entry besides its text: what a turn costs a model, and the memory of many small ones.
ENTRY_BYTES = 32
# Marks of a result that the model does not get, and of one that has only its beginning and its end.
RESULT_LEFT_OUT, RESULT_CUT = "left_out", "cut"


class Delivery(StrEnum):
    STEER = "steer"
    QUEUE = "queue"
    INTERRUPT = "interrupt"


class Priority(StrEnum):
    NORMAL = "normal"
    BATCH = "batch"


# omit_defaults: when a release adds a field, inputs without it keep their fingerprint, and their receipts are found.
class InputEvent(Struct, frozen=True, omit_defaults=True):
    text: Text
    type: Literal["input"]
    delivery: Annotated[
        Delivery,
        Meta(
            description="What happens while a run is active. `steer`: the input goes to that run. `queue`: it gets a "
            "run of its own, which is `pending` until the active run and the pending runs before it have ended. "
            "`interrupt`: the active run is cancelled, and the input starts a run at once, before pending runs."
        ),
    ] = Delivery.STEER
    attachments: Annotated[
        list[UUID],
        Meta(
            description="Ids of uploaded files, without repetitions. The model gets texts, images and PDFs. All become "
            "files of the session, under `attachments/`. A session without a sandbox takes only files that its model "
            "takes."
        ),
    ] = []
    priority: Annotated[
        Priority,
        Meta(
            description="Of the run that the input starts. `batch`: every step may take hours and costs half, because "
            "the model is asked by the batch interface of its provider. An input that steers a run does not change its "
            "priority."
        ),
    ] = Priority.NORMAL


class AttachmentRequest(Struct, frozen=True, kw_only=True):
    """For the SQL function find_attachments(), which checks the files of an input."""

    file_ids: list[UUID]
    # Used by sessions that name no model.
    default_model: str
    # Media types that the models of each provider take, as patterns of LIKE.
    media_types: dict[str, list[str]]
    # Limits for the files of the session, these included.
    all_files_bytes: int
    files: int


class Outcome(StrEnum):
    NEW_RUN = "new_run"
    STEERED = "steered"


class SubmitKindBody(Struct, frozen=True):
    outcome: Outcome
    run_id: UUID


class BatchModels(Struct, frozen=True):
    """For the SQL function model_without_batches(): the providers that have a batch interface."""

    # Used by sessions that name no model.
    default: str
    providers: list[str]


class Submission(Struct, frozen=True, eq=False):
    """One input on its way to the database."""

    credential: Credential
    session_id: UUID
    workspace_id: UUID | None
    text: str
    idempotency_key: str | None
    # None without an Idempotency-Key.
    fingerprint: bytes | None
    # The workspace of the caller, which uses its share of the queue.
    owner: Hashable
    attachments: AttachmentRequest | None = None
    # None: the priority is normal.
    batch_models: BatchModels | None = None
    # The trace of the request. None: it is not traced.
    traceparent: str | None = None

    @property
    def text_bytes(self) -> int:
        return len(self.text) if self.text.isascii() else len(self.text.encode())


class Verdict(StrEnum):
    ACCEPTED = "accepted"
    REPLAYED = "replayed"
    UNAUTHORIZED = "unauthorized"
    NOT_FOUND = "not_found"
    FORBIDDEN = "forbidden"
    CONFLICT = "conflict"
    ARCHIVED = "archived"
    # Another transaction holds the session. Only calls that do not wait for locks return this.
    LOCKED = "locked"
    # The active run has as many inputs waiting as it may have.
    FULL = "full"
    # About its attachments. The body says which file.
    UNKNOWN_FILE = "unknown_file"
    UNSUPPORTED_FILE = "unsupported_file"
    SESSION_FILES_FULL = "session_files_full"
    # The provider of the model has no batch interface. The body names the model.
    NO_BATCHES = "no_batches"


class Submitted(Struct, frozen=True):
    """The decision of the database about one submission. `body` is the encoded SubmitKindBody, or says more about a
    refusal."""

    verdict: Verdict
    body: bytes | None
    # The key or device. None: a session token.
    used_id: UUID | None


class RunState(StrEnum):
    # Waits for the end of the session's active run. It is not active and has no job.
    PENDING = "pending"
    QUEUED = "queued"
    RUNNING = "running"
    # Waits for answers to its actions. It is active and has no job.
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Usage(Struct, frozen=True):
    input_tokens: int
    cached_tokens: Annotated[int, Meta(description="Read from the provider's cache. Part of input_tokens.")]
    cache_write_tokens: Annotated[int, Meta(description="Written to the provider's cache. Part of input_tokens.")]
    output_tokens: int
    cost_usd: Annotated[float | None, Meta(description="null: the price of the model is unknown.")]


class UsedAgent(Struct, frozen=True):
    agent_id: UUID
    version: int


class RunBody(Struct, frozen=True, kw_only=True):
    id: UUID
    session_id: UUID
    state: RunState
    model: Annotated[
        str | None,
        Meta(description="The model that it asks now, which may be a fallback model. null: it has not started."),
    ]
    answered_by: Annotated[
        list[str], Meta(description="The models of its stored steps, in the order of their first answer.")
    ]
    agent: Annotated[
        UsedAgent | None, Meta(description="The version that it uses. null: none, or the run has not started.")
    ]
    priority: Priority
    attempts: Annotated[int, Meta(description="Number of attempts by workers.")]
    steps: Annotated[int, Meta(description="Number of stored model responses.")]
    inputs_accepted: int
    inputs_consumed: int
    usage: Usage
    waiting_for: Annotated[list[UUID], Meta(description="The open actions of the run.")]
    waits_for_model: Annotated[
        str | None,
        Meta(
            description="The provider of this model takes no more requests for the moment. The run goes on by itself "
            "when they are answered again, or when one of its fallback models is available. null: it need not wait "
            "for a model."
        ),
    ]
    waits_for_batch_since: Annotated[
        Moment | None,
        Meta(description="Since when it waits for the answer to a request that is part of a batch. null: it does not."),
    ]
    waited_seconds: Annotated[
        float, Meta(description="How long it has waited for answers to its actions and for batches in total.")
    ]
    failure: Annotated[str | None, Meta(description="Why the run failed. null: it did not.")]
    created_at: Moment
    started_at: Moment | None
    finished_at: Moment | None


class CancelledRunBody(RunBody, frozen=True, kw_only=True):
    discarded_input_ids: Annotated[list[UUID], Meta(description="Inputs that the run had not consumed.")]


class RunPage(Struct, frozen=True):
    items: list[RunBody]
    next_cursor: UUID | None


class UsedSkill(Struct, frozen=True):
    skill_id: UUID
    # In the frontmatter of this version.
    name: str
    version: int


class RunSetup(Struct, frozen=True, kw_only=True):
    """What a run uses in all its attempts, whatever changes after the first one has begun."""

    model: str
    settings: ModelOptions
    instructions: str | None
    skills: list[UsedSkill]
    client_tools: list[ToolSpec]
    sandbox: SandboxOptions | None = None
    agent: UsedAgent | None = None
    mcp_servers: list[UUID] = []
    output_schema: dict[str, Any] | None = None
    fallback_models: list[str] = []

    @property
    def models(self) -> list[str]:
        """In the order in which they are asked."""
        return list(dict.fromkeys([self.model, *self.fallback_models]))


class Superseded(Exception):
    """This attempt has lost the run: it was cancelled or taken over by another worker. Nothing was written."""


class Entry(Struct, frozen=True):
    """An event of the log as a run reads it, with the provider's record."""

    run_id: UUID | None
    type: str
    data: dict[str, Any]
    record: Any
    # The text of a consumed input. For a summary: not None if turns after it were not read. For a result: see RESULT_….
    text: str | None = None


class Input(Struct, frozen=True):
    # The id of the event input.accepted.
    event_id: int
    id: str
    text: str
    attachments: tuple[Attachment, ...] = ()
    # The input that a retry has repeated. None: it was sent by a caller.
    copy_of: str | None = None

    @property
    def text_bytes(self) -> int:
        return len(self.text.encode())


def attachments_of(stored: Any) -> tuple[Attachment, ...]:
    """From the data of an event. None: it has none."""
    return () if stored is None else msgspec.convert(stored, tuple[Attachment, ...])


class RunEnded(Struct, frozen=True, kw_only=True):
    """The `data` of a webhook about a run."""

    run_id: UUID
    session_id: UUID
    workspace_id: UUID
    state: RunState
    failure: str | None
    steps: int
    usage: Usage
    created_at: Moment
    started_at: Moment | None
    finished_at: Moment | None


_RUN = RunBody(
    id=RUN,
    session_id=SESSION,
    state=RunState.RUNNING,
    model="openai:gpt-5",
    answered_by=["openai:gpt-5"],
    agent=UsedAgent(AGENT, 2),
    priority=Priority.NORMAL,
    attempts=1,
    steps=2,
    inputs_accepted=2,
    inputs_consumed=1,
    usage=Usage(1840, 1024, 640, 212, 0.0041),
    waiting_for=[],
    waits_for_model=None,
    waits_for_batch_since=None,
    waited_seconds=0.0,
    failure=None,
    created_at=EVENING,
    started_at=EVENING,
    finished_at=None,
)

EXAMPLES = (
    _RUN,
    RunPage([_RUN], None),
    CancelledRunBody(
        **asdict(replace(_RUN, state=RunState.CANCELLED, finished_at=EVENING)),
        discarded_input_ids=[UUID("0192f0d3-a1b2-7c03-8d72-3b7c5e9d1f07")],
    ),
    InputEvent("Summarise the incidents of this week.", "input"),
    SubmitKindBody(Outcome.NEW_RUN, RUN),
)

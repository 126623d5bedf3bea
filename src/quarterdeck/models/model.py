"""The interface between a run and any model: turns, tools, steps, failures."""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Literal, Protocol
from uuid import UUID

import msgspec
from msgspec import Meta, Struct

from quarterdeck.core.text_types import is_deeper, storable
from quarterdeck.tools.model import ToolSpec

# The argument that holds the model's text if it wrote no JSON object. Tools answer such a call with an error, so that
# the model can try again. pydantic-ai uses the same name towards providers.
MALFORMED_ARGUMENTS = "INVALID_JSON"


class Attachment(Struct, frozen=True, kw_only=True):
    """A file that belongs to an input. Also part of the event input.accepted."""

    file_id: UUID
    name: str
    media_type: str
    bytes: int
    # In hex.
    sha256: str
    # Among the files of the session. None: the session has no sandbox.
    path: str | None = None


class AttachmentContent(Struct, frozen=True, kw_only=True):
    """What a request contains of an attachment."""

    # None: it is only mentioned, and `note` says why.
    data: bytes | None = None
    note: str | None = None
    # Estimated, without the mention.
    tokens: int = 0
    # From the start of the file. Set before the data is loaded.
    wanted_bytes: int | None = None


class TurnOrigin(StrEnum):
    INPUT = "input"
    # Tells the model that its answer does not match the output schema. Not in the log: see journal.py.
    CORRECTION = "correction"
    # Stands for the older part of the conversation. Only the first turn can be one.
    SUMMARY = "summary"


class UserTurn(Struct, frozen=True):
    text: str
    # The run that consumed this input. None: unknown, treated as the same run as the neighbouring turns.
    run_id: UUID | None = None
    attachments: tuple[Attachment, ...] = ()
    # The contents of the attachments, in their order. Empty until a request is prepared: see attachments.py.
    contents: tuple[AttachmentContent, ...] = ()
    origin: TurnOrigin = TurnOrigin.INPUT
    # The id of the first input, for an input and its copies by retries. None: unknown, treated as different from all
    # others.
    input_id: str | None = None
    # The text was shortened to fit into the context.
    is_cut: bool = False


class ToolCall(Struct, frozen=True):
    id: str
    name: str
    # Not validated against the schema of the tool.
    arguments: dict[str, Any]


class CutOff(StrEnum):
    """Why an answer ends before its end. Also part of the event message."""

    LENGTH = "length"
    CONTENT_FILTER = "content_filter"

    @property
    def reason(self) -> str:
        reached = "It reached the limit of output tokens."
        return reached if self is CutOff.LENGTH else "The content filter of the provider ended it."


class AssistantTurn(Struct, frozen=True):
    text: str
    tool_calls: list[ToolCall]
    # The provider's JSON form of this turn. Sent back unchanged if the model is the same.
    record: Any = None
    # None: it is complete.
    cut_off: CutOff | None = None
    # The text was cut to fit into the context.
    is_cut: bool = False


class ResultImage(Struct, frozen=True, kw_only=True):
    """An image in the result of a call. Also part of the event tool.result."""

    # In hex.
    sha256: str
    media_type: str
    bytes: int


class ToolResult(Struct, frozen=True):
    call_id: str
    name: str
    content: str
    images: tuple[ResultImage, ...] = ()
    # The contents of the images, in their order. Empty until a request is prepared: see attachments.py.
    contents: tuple[AttachmentContent, ...] = ()
    # The call failed. Providers that have a field for it are told; the content says so, too.
    is_error: bool = False
    is_cut: bool = False


Turn = UserTurn | AssistantTurn | ToolResult


Temperature = Annotated[float, Meta(ge=0, le=2)]
MaxOutputTokens = Annotated[int, Meta(ge=1, le=1_000_000)]
ReasoningEffort = Literal["low", "medium", "high"]


class ModelOptions(Struct, frozen=True):
    """null: not sent, so that the provider's default applies."""

    temperature: Temperature | None = None
    max_output_tokens: Annotated[MaxOutputTokens | None, Meta(description="Of one answer, reasoning included.")] = None
    reasoning_effort: ReasoningEffort | None = None


NO_OPTIONS = ModelOptions()


# How long pieces of an answer may come together if nobody reads along.
UNREAD_SECONDS = 0.5


class StepRequest(Struct, frozen=True):
    """What a model is asked."""

    instructions: str
    turns: Sequence[Turn]
    tools: Sequence[ToolSpec] = ()
    # The model is asked for an answer that matches it. The model does not check that.
    output_schema: dict[str, Any] | None = None
    # How long pieces of the answer may come together. Asked again and again: readers come and go.
    pause_seconds: Callable[[], float] = lambda: UNREAD_SECONDS


class CitedSource(Struct, frozen=True, omit_defaults=True):
    """What an answer refers to, as its provider says. Also part of the event message."""

    title: str
    # None: a document, and not a page.
    url: str | None = None


class Step(Struct, frozen=True):
    """The result of one request to the model."""

    turn: AssistantTurn
    input_tokens: int
    output_tokens: int
    # Read from the provider's cache. Part of input_tokens.
    cached_tokens: int = 0
    # Written to it, for later requests. Part of input_tokens.
    cache_write_tokens: int = 0
    # None: the price of the model is unknown.
    cost_usd: Decimal | None = None
    # Names of options that were not sent, because the model does not take them.
    ignored_settings: tuple[str, ...] = ()
    # For people. What the provider wants back is in the record of the turn.
    reasoning: str = ""
    sources: tuple[CitedSource, ...] = ()


# Called with each piece of text as it arrives, for display only. After a failed try the text of the next try follows
# from its beginning. Only the returned turn is stored.
OnText = Callable[[str], None]


# Called before a failed request is repeated, with the number of the next request, the pause in seconds, and the reason.
OnRetry = Callable[[int, float, str], None]


# Called with the name of a model and the seconds for which its provider answers no more requests, if it announces that.
OnUsedUp = Callable[[str, float], None]


class Model(Protocol):
    @property
    def name(self) -> str:
        """`provider:name`, or `demo`."""

    def takes(self, media_type: str) -> bool:
        """Whether files of this type can be part of a request."""

    async def step(self, request: StepRequest, on_text: OnText) -> Step:
        """Make one request, without retries. Raises TransientFailure if a retry may succeed, otherwise ModelFailure."""


class EncodedRequest(Struct, frozen=True):
    """A request as the batch interface of a provider takes it."""

    custom_id: str
    # Only requests of one group can be in one batch.
    group: str
    body: str


class BatchAnswer(Struct, frozen=True):
    custom_id: str
    # As the provider sent it. None: there is no answer, and `failure` says why.
    body: str | None
    failure: str | None = None


# What a provider calls a batch: plain JSON, for any worker.
BatchHandle = dict[str, Any]


class Batches(Protocol):
    """The batch interface of a model's provider. Raises ModelFailure and TransientFailure, as a step does."""

    async def encode(self, custom_id: str, request: StepRequest) -> EncodedRequest: ...

    async def create(self, requests: Sequence[EncodedRequest]) -> BatchHandle:
        """Not to be repeated without need: the provider may have created it though the request failed."""

    async def look(self, handle: BatchHandle) -> tuple[BatchHandle, bool]:
        """The handle as it is now, and whether the batch has ended."""

    async def answers(self, handle: BatchHandle) -> list[BatchAnswer]:
        """Of a batch that has ended."""

    async def cancel(self, handle: BatchHandle) -> None: ...

    async def decode(self, body: str, request: StepRequest) -> Step:
        """The answer to this request, of which only the tools and the output schema count."""


class ModelFailure(Exception):
    """Ends the run as failed. The text goes to the session's log: no secrets, no traceback."""


class QuotaExceeded(ModelFailure):
    """The provider answers no request of this account until somebody pays. Another model may answer."""


class ContentRefused(ModelFailure):
    """The provider refused the request because of its content, so the same turns would be refused again."""


class ContextExceeded(ContentRefused):
    """The conversation is longer than the model's context window. Fewer turns may fit."""


class TransientFailure(Exception):
    """A retry may succeed. The text may go to the session's log: no secrets, no traceback."""

    def __init__(self, reason: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after_seconds = retry_after_seconds


class ProviderRefused(TransientFailure):
    """The provider takes no more requests for the moment: too many came, or it is overloaded."""


# Arguments of tool calls, as models write them.

_MALFORMED_CHARACTERS = 2000
# JSON is decoded recursively, and the possible depth depends on the stack: a document that a worker can decode may be
# too deep for an API process. No tool needs arguments this deep.
MAX_LEVELS = 100


def read_arguments(written: str | Mapping[str, Any] | None) -> dict[str, Any]:
    if not written:
        return {}
    try:
        # Nearly all providers send text. The round trip turns other mappings into plain JSON.
        text = written if isinstance(written, str) else msgspec.json.encode(written)
        arguments = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, OverflowError):
        arguments = None
    if not isinstance(arguments, dict) or is_deeper(arguments, MAX_LEVELS) or "\\u0000" in str(written):
        return {MALFORMED_ARGUMENTS: storable(str(written)[:_MALFORMED_CHARACTERS])}
    return arguments

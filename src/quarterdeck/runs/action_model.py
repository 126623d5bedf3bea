"""Actions: what runs wait for."""

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import force_setattr, replace

from quarterdeck.core.actors import Caller
from quarterdeck.core.example_ids import ACTION, API_KEY, EVENING, RUN, SESSION, USER
from quarterdeck.core.operation import Query
from quarterdeck.core.text_types import Moment, Text


class ActionKind(StrEnum):
    # May the tool be called?
    APPROVAL = "approval"
    # The caller carries out the call and sends its result.
    TOOL_RESULT = "tool_result"
    # A worker was lost during the call: nobody knows whether it took effect.
    UNKNOWN_OUTCOME = "unknown_outcome"
    # A limit of cost or tokens is reached.
    BUDGET = "budget"


class ActionState(StrEnum):
    OPEN = "open"
    RESOLVED = "resolved"
    # Nobody answered in time. Counts as denied.
    EXPIRED = "expired"
    # The run was cancelled.
    CANCELLED = "cancelled"


class Decision(StrEnum):
    ALLOW = "allow"
    DENY = "deny"
    RETRY = "retry"
    DONE = "done"
    FAILED = "failed"
    RAISE = "raise"
    STOP = "stop"


class LimitScope(StrEnum):
    RUN = "run"
    SESSION = "session"
    # All runs of a workspace since midnight UTC.
    DAY = "day"


class ReachedLimit(Struct, frozen=True):
    """A limit, and what was used of it when it was reached."""

    scope: LimitScope
    limit: Literal["max_cost_usd", "max_tokens"]
    # Tokens are whole numbers.
    maximum: int | float
    used: int | float

    def __post_init__(self) -> None:
        # PostgreSQL writes a cost of 1.0 as 1.
        if self.limit == "max_cost_usd":
            force_setattr(self, "maximum", float(self.maximum))
            force_setattr(self, "used", float(self.used))

    def amount(self, value: float) -> str:
        """`value` in the unit of the limit."""
        if self.limit == "max_tokens":
            return f"{value:,.0f} tokens"
        # Cents, and more digits only for amounts that would look like another one without them.
        whole, _, fraction = f"{value:,.6f}".rstrip("0").partition(".")
        return f"${whole}.{fraction:0<2}"


# Unknown fields are errors: with misspelled `arguments`, the call would be carried out unchanged.
class ResolveActionBody(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The answer. Which fields belong to it depends on the kind of the action."""

    decision: Annotated[
        Decision | UnsetType,
        Meta(
            description="approval: `allow` or `deny`. unknown_outcome: `retry`, `done` or `failed`. budget: `raise` or "
            "`stop`. tool_result: none."
        ),
    ] = UNSET
    message: Annotated[Text | UnsetType, Meta(description="approval: told to the model with `deny`.")] = UNSET
    arguments: Annotated[
        dict[str, Any] | UnsetType, Meta(description="approval: replaces the arguments of the model.")
    ] = UNSET
    remember: Annotated[
        Literal["session"] | UnsetType,
        Meta(description="approval: allows this tool for the rest of the session."),
    ] = UNSET
    result: Annotated[Any, Meta(description="tool_result, unknown_outcome: text or JSON for the model.")] = UNSET
    is_error: Annotated[bool | UnsetType, Meta(description="tool_result: the call failed.")] = UNSET
    max_cost_usd: Annotated[
        Annotated[float, Meta(gt=0, le=1e9)] | UnsetType, Meta(description="budget: the new limit of cost.")
    ] = UNSET
    max_tokens: Annotated[
        Annotated[int, Meta(ge=1, le=2**53)] | UnsetType, Meta(description="budget: the new limit of tokens.")
    ] = UNSET


class ActionBody(Struct, frozen=True, kw_only=True):
    id: UUID
    session_id: UUID
    run_id: UUID
    kind: ActionKind
    state: ActionState
    call_id: Annotated[str | None, Meta(description="The tool call in the log. null: a budget.")]
    tool: Annotated[str | None, Meta(description="null: a budget.")]
    arguments: Annotated[
        dict[str, Any] | None,
        Meta(
            description="As the model gave them. tool_result and unknown_outcome: those of the approval, if it changed "
            "them. null: a budget."
        ),
    ]
    reached: Annotated[ReachedLimit | None, Meta(description="The limit of a budget. null: another kind.")]
    reason: Annotated[str, Meta(description="Why the run waits, in one sentence.")]
    created_at: Moment
    expires_at: Annotated[Moment, Meta(description="Without an answer until then, it counts as denied.")]
    resolved_at: Annotated[Moment | None, Meta(description="null: it is open.")]
    resolved_by: Annotated[Caller | None, Meta(description="null: nobody answered, or its limit was raised elsewhere.")]
    resolution: Annotated[dict[str, Any] | None, Meta(description="The answer. null: there is none.")]


class ActionPage(Struct, frozen=True):
    items: list[ActionBody]
    next_cursor: UUID | None


class ActionQuery(Query, frozen=True):
    state: Annotated[ActionState | None, Meta(description="Only actions in this state.")] = None
    kind: Annotated[ActionKind | None, Meta(description="Only actions of this kind.")] = None
    session_id: Annotated[UUID | None, Meta(description="Only actions of this session.")] = None


class ActionId(Struct, frozen=True):
    """An item of a page whose content is not read yet."""

    id: UUID


class NewAction(Struct, frozen=True, kw_only=True):
    """An action to be stored."""

    kind: ActionKind
    reason: str
    step: int | None = None
    call_id: str | None = None
    tool: str | None = None
    arguments: dict[str, Any] | None = None
    attempt: int | None = None
    reached: ReachedLimit | None = None
    # In hex. Of a tool of an MCP server.
    tool_definition: str | None = None


class RememberedTool(Struct, frozen=True):
    """A tool that a person has allowed for the rest of the session."""

    name: str
    # In hex. Of a tool of an MCP server: only this definition of it is allowed.
    definition: str | None = None


class CallAction(Struct, frozen=True):
    """An action of a call of the current step, as a worker reads it."""

    kind: ActionKind
    state: ActionState
    call_id: str
    # The attempt that started the call, if its outcome is unknown.
    attempt: int | None
    resolution: dict[str, Any] | None


class ActionData(ActionBody, frozen=True, kw_only=True):
    """The `data` of a webhook about an action."""

    workspace_id: UUID


_OPEN = ActionBody(
    id=ACTION,
    session_id=SESSION,
    run_id=RUN,
    kind=ActionKind.APPROVAL,
    state=ActionState.OPEN,
    call_id="call_7Jd2",
    tool="add_note",
    arguments={"text": "The incident is over."},
    reached=None,
    reason="The tool add_note writes, and no rule of the session allows it.",
    created_at=EVENING,
    expires_at=EVENING + timedelta(days=7),
    resolved_at=None,
    resolved_by=None,
    resolution=None,
)

EXAMPLES = (
    ResolveActionBody(decision=Decision.ALLOW, remember="session"),
    replace(
        _OPEN,
        state=ActionState.RESOLVED,
        resolved_at=EVENING + timedelta(minutes=4),
        resolved_by=Caller("api_key", API_KEY, "release server", USER, "Ada Byron"),
        resolution={"decision": "allow", "remember": "session"},
    ),
    ActionPage([_OPEN], None),
)

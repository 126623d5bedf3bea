"""Sessions and their tokens: request bodies, response bodies and stored records."""

from enum import StrEnum
from typing import Annotated, Literal
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict, replace

from quarterdeck.agents.configuration import (
    AgentConfiguration,
    AgentReference,
    ClientTools,
    ConfigurationField,
    FallbackModels,
    Instructions,
    Limit,
    Limits,
    McpServers,
    Model,
    OutputSchema,
    Sandbox,
    SessionSkill,
    SetLimits,
    Skills,
    ToolPolicy,
)
from quarterdeck.core.actors import ActorBody
from quarterdeck.core.example_ids import ADA, AGENT, API_KEY, EVENING, MORNING, RUN, SESSION, WORKSPACE
from quarterdeck.core.text_types import Line, Moment
from quarterdeck.models.model import MaxOutputTokens, ModelOptions, ReasoningEffort, Temperature
from quarterdeck.runs.model import RunState, Usage
from quarterdeck.sandbox.model import SandboxOptions
from quarterdeck.tools.model import ToolRule

Title = Line | None


class CreateSessionBody(Struct, frozen=True):
    title: Annotated[
        Title, Meta(description="null: the first line of the first input becomes the title when its run begins.")
    ] = None
    # UNSET: an agent, if there is one, sets what is left out.
    model: Model | UnsetType = UNSET
    instructions: Instructions | UnsetType = UNSET
    skills: Skills | UnsetType = UNSET
    settings: ModelOptions | UnsetType | None = UNSET
    tool_policy: ToolPolicy | UnsetType = UNSET
    client_tools: ClientTools | UnsetType = UNSET
    limits: SetLimits | UnsetType = UNSET
    sandbox: Annotated[
        Sandbox | UnsetType,
        Meta(description="The default is a setting of the server, otherwise `{}` if it has a sandbox."),
    ] = UNSET
    agent: Annotated[
        AgentReference | UnsetType | None,
        Meta(description="The session follows this agent in all fields that are left out. null: no agent."),
    ] = UNSET
    mcp_servers: McpServers | UnsetType = UNSET
    output_schema: OutputSchema | UnsetType = UNSET
    fallback_models: FallbackModels | UnsetType = UNSET


class ChangeSettings(Struct, frozen=True):
    """What is left out stays as it is. null: the provider's default."""

    temperature: Temperature | UnsetType | None = UNSET
    max_output_tokens: MaxOutputTokens | UnsetType | None = UNSET
    reasoning_effort: ReasoningEffort | UnsetType | None = UNSET


class ChangeSessionBody(Struct, frozen=True):
    """Changes only the given fields."""

    title: Title | UnsetType = UNSET
    model: Model | UnsetType = UNSET
    instructions: Instructions | UnsetType = UNSET
    skills: Skills | UnsetType = UNSET
    settings: ChangeSettings | UnsetType = UNSET
    tool_policy: ToolPolicy | UnsetType = UNSET
    client_tools: ClientTools | UnsetType = UNSET
    limits: SetLimits | UnsetType = UNSET
    sandbox: Annotated[
        Sandbox | UnsetType, Meta(description="For the next run. The files are kept with null, too.")
    ] = UNSET
    agent: Annotated[
        AgentReference | UnsetType | None,
        Meta(
            description="The session follows this agent from now on, except in the fields of `overrides`. null: no "
            "agent; all fields keep their current values."
        ),
    ] = UNSET
    inherit: Annotated[
        Annotated[list[ConfigurationField], Meta(max_length=100)] | UnsetType,
        Meta(description="Fields that follow the agent again. A field that is set does not follow it any more."),
    ] = UNSET
    mcp_servers: McpServers | UnsetType = UNSET
    output_schema: OutputSchema | UnsetType = UNSET
    fallback_models: FallbackModels | UnsetType = UNSET
    archived: Annotated[
        bool | UnsetType,
        Meta(description="An archived session accepts no input. It stays readable and can be unarchived."),
    ] = UNSET


class ForkSessionBody(Struct, frozen=True):
    before_event_id: Annotated[
        Annotated[int, Meta(ge=1, le=2**63 - 1)] | None,
        Meta(description="The first event of the log that is not copied. By default the whole log is."),
    ] = None


class ForkedFrom(Struct, frozen=True):
    session_id: Annotated[UUID, Meta(description="The origin. It may have been deleted since.")]
    event_id: Annotated[int | None, Meta(description="Its first event that was not copied. null: all were.")]


class SessionAgent(Struct, frozen=True):
    """The agent of a session."""

    agent_id: UUID
    version: Annotated[
        int | None, Meta(description="The pinned version. null: the default version of the agent, or its latest.")
    ]
    name: str
    current_version: Annotated[int, Meta(description="The version that a run would use now.")]


class SessionSummary(Struct, frozen=True, kw_only=True):
    """A session but for its instructions, which may be long."""

    id: UUID
    workspace_id: UUID
    title: str | None
    model: str | None
    effective_model: Annotated[str, Meta(description="`model`, or the default model of the server.")]
    settings: ModelOptions
    skills: list[SessionSkill]
    agent: Annotated[SessionAgent | None, Meta(description="null: the session has all its settings itself.")]
    overrides: Annotated[
        list[ConfigurationField],
        Meta(description="The fields that do not follow the agent, sorted by name. Empty without an agent."),
    ]
    created_at: Moment
    created_by: ActorBody
    archived_at: Moment | None
    revision: Annotated[
        int,
        Meta(ge=1, description="Number of changes, without those of its agent. The ETag is derived from it."),
    ]


class NewSession(Struct, frozen=True, kw_only=True):
    """A session to be stored. The columns always hold what the session uses, also what it has from its agent."""

    title: str | None
    # Its sandbox is set.
    configuration: AgentConfiguration
    agent: AgentReference | None = None
    overrides: list[ConfigurationField] = []


class StoredSettings(Struct, frozen=True, kw_only=True):
    """What a run that begins needs of its session. The skills are read apart, if there are any."""

    workspace_id: UUID
    configuration: AgentConfiguration
    agent: AgentReference | None
    overrides: list[ConfigurationField]
    has_skills: bool


class SessionBody(SessionSummary, frozen=True, kw_only=True):
    instructions: str | None
    tool_policy: ToolPolicy
    client_tools: ClientTools
    limits: Limits
    sandbox: Sandbox
    mcp_servers: McpServers
    output_schema: OutputSchema
    fallback_models: FallbackModels
    usage: Annotated[Usage, Meta(description="Tokens of all its runs. Changes without a new revision.")]
    forked_from: Annotated[ForkedFrom | None, Meta(description="null: it is not a fork.")]


def configuration_of(session: SessionBody) -> AgentConfiguration:
    return AgentConfiguration(**{field.value: getattr(session, field) for field in ConfigurationField})


class ActiveRun(Struct, frozen=True):
    id: UUID
    state: Literal["queued", "running", "waiting"]


class LastRun(Struct, frozen=True):
    id: UUID
    state: RunState


class ListedSession(SessionSummary, frozen=True, kw_only=True):
    active_run: Annotated[ActiveRun | None, Meta(description="The active run. null: none.")]
    last_run: Annotated[LastRun | None, Meta(description="The active run, otherwise the newest. null: none yet.")]
    forked_from: Annotated[ForkedFrom | None, Meta(description="null: it is not a fork.")]
    last_activity_at: Annotated[Moment, Meta(description="Time of the last event, or of its creation.")]


class SearchIn(StrEnum):
    TITLES = "titles"
    CONVERSATIONS = "conversations"


class SessionPage(Struct, frozen=True):
    items: list[ListedSession]
    next_cursor: UUID | None


class LogEntry(Struct, frozen=True):
    """An event of the origin without its content."""

    id: int
    run_id: UUID | None
    type: str
    # The event input.accepted of a consumed or discarded input. None: it is missing.
    accepted_id: int | None
    # As stored, perhaps compressed.
    stored_bytes: int
    run_is_active: bool
    # Whether the model no longer sees what the run consumed after its last answer.
    unanswered_left_out: bool
    # Whether a consumed input was dropped later.
    is_dropped: bool


_SUMMARY = SessionSummary(
    id=SESSION,
    workspace_id=WORKSPACE,
    title="Incident review",
    model=None,
    effective_model="openai:gpt-5",
    settings=ModelOptions(temperature=0.2),
    skills=[],
    agent=SessionAgent(AGENT, None, "incident-writer", 2),
    overrides=[ConfigurationField.SETTINGS],
    created_at=MORNING,
    created_by=ADA,
    archived_at=None,
    revision=1,
)

# Session tokens: request bodies, response bodies and stored records.


class CreateSessionTokenBody(Struct, frozen=True):
    expires_at: Annotated[Moment | None, Meta(description="Default and maximum are settings of the server.")] = None
    label: Annotated[Line | None, Meta(description="For the log of the session. null: none.")] = None
    may_resolve: Annotated[bool, Meta(description="The token may list and resolve the actions of its session.")] = False


class SessionTokenBody(Struct, frozen=True, kw_only=True):
    id: UUID
    session_id: UUID
    prefix: str
    label: str | None
    may_resolve: Annotated[bool, Meta(description="The token may list and resolve the actions of its session.")]
    api_key_id: Annotated[
        UUID | None,
        Meta(description="The key that created the token. Revoking it ends the token. null: a person's device did."),
    ]
    created_by: ActorBody
    created_at: Moment
    expires_at: Moment
    revoked_at: Moment | None


class CreatedSessionTokenBody(SessionTokenBody, frozen=True, kw_only=True):
    token: Annotated[str | UnsetType, Meta(description="Shown only once, never in a replayed response.")] = UNSET


class SessionTokenPage(Struct, frozen=True):
    items: list[SessionTokenBody]
    next_cursor: UUID | None


# Truncated: a complete secret would trigger secret scanners.
_SECRET = "qds_live_h2Lq81Zc…"

_TOKEN = SessionTokenBody(
    id=UUID("0192f0d6-41b2-7c95-a8e3-7d0f5b2c9a07"),
    session_id=SESSION,
    prefix="qds_live_h2Lq81Zc",
    label="support widget",
    may_resolve=False,
    api_key_id=API_KEY,
    created_by=ADA,
    created_at=MORNING,
    expires_at=EVENING,
    revoked_at=None,
)


EXAMPLES = (
    CreateSessionBody("Incident review"),
    ChangeSessionBody(title="Incident review, week 9"),
    ForkSessionBody(before_event_id=120),
    SessionBody(
        **asdict(_SUMMARY),
        instructions=None,
        tool_policy={"add_note": ToolRule.ALLOW, "crm_*": ToolRule.ASK},
        client_tools=[],
        limits=Limits(run=Limit(max_cost_usd=2.0)),
        sandbox=SandboxOptions(),
        mcp_servers=[],
        output_schema=None,
        fallback_models=["anthropic:claude-sonnet-4-5"],
        usage=Usage(5200, 4096, 800, 840, 0.0107),
        forked_from=None,
    ),
    SessionPage(
        [
            ListedSession(
                **asdict(_SUMMARY),
                active_run=ActiveRun(RUN, "running"),
                last_run=LastRun(RUN, RunState.RUNNING),
                forked_from=None,
                last_activity_at=MORNING,
            )
        ],
        None,
    ),
    CreateSessionTokenBody(label="support widget"),
    CreatedSessionTokenBody(**asdict(_TOKEN), token=_SECRET),
    replace(_TOKEN, revoked_at=EVENING),
    SessionTokenPage([_TOKEN], None),
)

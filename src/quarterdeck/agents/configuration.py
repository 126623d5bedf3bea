"""The parts of an agent: model, instructions, skills, tools and limits. Held by versions of agents and by sessions."""

from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType

from quarterdeck.core.text_types import Line, Text
from quarterdeck.models.model import NO_OPTIONS, ModelOptions
from quarterdeck.sandbox.model import SandboxOptions
from quarterdeck.tools.model import ToolRule, ToolSpec


class SessionSkill(Struct, frozen=True):
    skill_id: UUID
    version: Annotated[
        Annotated[int, Meta(ge=1, le=2**31 - 1)] | None,
        Meta(description="null: the default version of the skill, or its latest."),
    ] = None


Model = Annotated[
    Line | None,
    Meta(description="`provider:name` of a configured provider, or `demo`. null: the default model of the server."),
]
FallbackModels = Annotated[
    list[Line],
    Meta(
        max_length=8,
        description="Models that answer a step if `model` is not available: the first of them that is. Without "
        "repetitions.",
    ),
]
Instructions = Annotated[Text | None, Meta(description="Instructions for the agent.")]
Skills = Annotated[list[SessionSkill], Meta(max_length=100)]


MaxCost = Annotated[float, Meta(gt=0, le=1e9)]
MaxTokens = Annotated[int, Meta(ge=1, le=2**53)]


class Limit(Struct, frozen=True):
    """null: no limit."""

    max_cost_usd: MaxCost | None = None
    max_tokens: MaxTokens | None = None


# Unknown fields are errors: a misspelled limit would be no limit.
class SetLimit(Struct, frozen=True, forbid_unknown_fields=True):
    """What is left out stays as it is. null: no limit."""

    max_cost_usd: MaxCost | UnsetType | None = UNSET
    max_tokens: MaxTokens | UnsetType | None = UNSET


class Limits(Struct, frozen=True):
    """A run that reaches a limit waits for an action of the kind `budget`."""

    run: Limit = Limit()
    session: Annotated[Limit, Meta(description="All runs of the session together.")] = Limit()


class SetLimits(Struct, frozen=True, forbid_unknown_fields=True):
    """What is left out stays as it is."""

    run: SetLimit | UnsetType = UNSET
    session: Annotated[SetLimit | UnsetType, Meta(description="All runs of the session together.")] = UNSET


ToolPolicy = Annotated[
    dict[
        Annotated[
            str,
            Meta(
                pattern=r"^([A-Za-z0-9_-]{1,128}\*?|\*)(?![\s\S])",
                description="The name of a tool (letters, digits, `_` and `-`), or a prefix with `*` at its end.",
            ),
        ],
        ToolRule,
    ],
    Meta(
        max_length=200,
        description="By name of a tool, or by prefix with `*` at its end. An exact name goes before a prefix, and the "
        "longest prefix before shorter ones. Tools without an entry: those that only read and those of the caller are "
        "allowed, all others ask.",
    ),
]
ClientTools = Annotated[
    list[ToolSpec],
    Meta(max_length=100, description="Tools that the caller carries out: each call becomes an action `tool_result`."),
]


Sandbox = Annotated[
    SandboxOptions | None,
    Meta(
        description="A folder for the agent, with tools that read and write files and run commands in a sandbox. `{}`: "
        "with the defaults. null: no such tools."
    ),
]


McpServers = Annotated[
    list[UUID], Meta(max_length=50, description="Ids of MCP servers of the workspace, whose tools the model can call.")
]
OutputSchema = Annotated[
    dict[str, Any] | None,
    Meta(description="JSON Schema. The final message of a run is JSON that matches it, or the run fails. null: text."),
]


class ConfigurationField(StrEnum):
    """The fields that a session takes from its agent, unless it sets them itself."""

    MODEL = "model"
    FALLBACK_MODELS = "fallback_models"
    SETTINGS = "settings"
    INSTRUCTIONS = "instructions"
    SKILLS = "skills"
    CLIENT_TOOLS = "client_tools"
    MCP_SERVERS = "mcp_servers"
    TOOL_POLICY = "tool_policy"
    LIMITS = "limits"
    SANDBOX = "sandbox"
    OUTPUT_SCHEMA = "output_schema"


# Unknown fields are errors: a misspelled limit would be no limit.
class AgentConfiguration(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of a version of an agent. Its fields are those of ConfigurationField."""

    model: Model = None
    fallback_models: FallbackModels = []
    settings: ModelOptions = NO_OPTIONS
    instructions: Instructions = None
    skills: Skills = []
    client_tools: ClientTools = []
    mcp_servers: McpServers = []
    tool_policy: ToolPolicy = {}
    limits: Limits = Limits()
    # UNSET: not stored yet.
    sandbox: Annotated[
        Sandbox | UnsetType, Meta(description="If it is left out, the version gets the default of the server.")
    ] = UNSET
    output_schema: OutputSchema = None


class AgentReference(Struct, frozen=True):
    agent_id: UUID
    version: Annotated[
        Annotated[int, Meta(ge=1, le=2**31 - 1)] | None,
        Meta(description="null: the default version of the agent, or its latest, when a run begins."),
    ] = None

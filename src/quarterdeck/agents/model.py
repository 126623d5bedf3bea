"""Agents and their versions: request and response bodies."""

from typing import Annotated, Any
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict, force_setattr

from quarterdeck.agents.configuration import (
    AgentConfiguration,
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
    Skills,
    ToolPolicy,
)
from quarterdeck.core.actors import ActorBody
from quarterdeck.core.example_ids import ADA, AGENT, MORNING, WORKSPACE
from quarterdeck.core.operation import Number
from quarterdeck.core.text_types import Moment, Name, plain_name
from quarterdeck.models.model import ModelOptions
from quarterdeck.tools.model import ToolRule


class CreateAgentBody(Struct, frozen=True):
    name: Name
    version: Annotated[
        AgentConfiguration | None, Meta(description="The first version. null: the agent has no version yet.")
    ] = None

    def __post_init__(self) -> None:
        force_setattr(self, "name", plain_name(self.name))


class AgentBody(Struct, frozen=True, kw_only=True):
    id: UUID
    workspace_id: UUID
    name: str
    latest_version: Annotated[int | None, Meta(description="null until a version is pushed.")]
    default_version: Annotated[
        int | None, Meta(description="Used by sessions that pin no version. null: the latest version.")
    ]
    model: Annotated[
        str | None, Meta(description="Of the version that such sessions use. null: the default model, or no version.")
    ]
    revision: Annotated[int, Meta(description="Counts changes and pushes. The ETag is derived from it.")]
    archived_at: Annotated[Moment | None, Meta(description="null unless archived.")]
    created_at: Moment
    created_by: ActorBody


class AgentPage(Struct, frozen=True):
    items: list[AgentBody]
    next_cursor: UUID | None


class ChangeAgentBody(Struct, frozen=True):
    """What is left out stays as it is."""

    name: Name | UnsetType = UNSET
    default_version: Annotated[
        Number | UnsetType | None, Meta(description="A version that was pushed. null: follow the latest again.")
    ] = UNSET
    archived: bool | UnsetType = UNSET

    def __post_init__(self) -> None:
        if self.name is not UNSET:
            force_setattr(self, "name", plain_name(self.name))


class AgentVersionItem(Struct, frozen=True, kw_only=True):
    """A version in a list. Without its content, which may be long."""

    id: UUID
    agent_id: UUID
    version: Number
    model: Model
    created_at: Moment
    created_by: ActorBody


class AgentVersionBody(AgentVersionItem, frozen=True, kw_only=True):
    """A version. It never changes."""

    fallback_models: FallbackModels
    settings: ModelOptions
    instructions: Instructions
    skills: Skills
    client_tools: ClientTools
    mcp_servers: McpServers
    tool_policy: ToolPolicy
    limits: Limits
    sandbox: Sandbox
    output_schema: OutputSchema


class AgentVersionPage(Struct, frozen=True):
    items: list[AgentVersionItem]
    next_cursor: UUID | None


class FieldDiff(Struct, frozen=True):
    field: ConfigurationField
    before: Any
    after: Any
    diff: Annotated[
        str | None,
        Meta(
            description="Unified diff of the instructions, or of the JSON of other fields with several values. null: "
            "`before` and `after` are short, or together longer than 512 KiB."
        ),
    ]


class AgentDiffBody(Struct, frozen=True):
    base: Number
    head: Number
    fields: Annotated[list[FieldDiff], Meta(description="The fields that differ. Empty if none does.")]


class UsedVersion(Struct, frozen=True):
    """The version of an agent that a session uses now."""

    agent_id: UUID
    name: str
    version: int
    configuration: AgentConfiguration


# Can be sent as it is: no skill or server of the workspace is named.
_CONFIGURATION = AgentConfiguration(
    model="demo",
    settings=ModelOptions(temperature=0.2),
    instructions="You write incident reports.",
    tool_policy={"add_note": ToolRule.ALLOW},
    limits=Limits(run=Limit(max_cost_usd=2.0)),
    sandbox=None,
)
_AGENT = AgentBody(
    id=AGENT,
    workspace_id=WORKSPACE,
    name="incident-writer",
    latest_version=2,
    default_version=1,
    model="demo",
    revision=4,
    archived_at=None,
    created_at=MORNING,
    created_by=ADA,
)
_VERSION = AgentVersionItem(
    id=UUID("0192f0de-5d18-7a92-8c47-3e7b5d9f1a14"),
    agent_id=AGENT,
    version=1,
    model="demo",
    created_at=MORNING,
    created_by=ADA,
)

EXAMPLES = (
    CreateAgentBody("incident-writer", _CONFIGURATION),
    _CONFIGURATION,
    _AGENT,
    AgentPage([_AGENT], None),
    ChangeAgentBody(default_version=1),
    AgentVersionBody(**{**asdict(_CONFIGURATION), **asdict(_VERSION)}),
    AgentVersionPage([_VERSION], None),
    AgentDiffBody(
        base=1,
        head=2,
        fields=[
            FieldDiff(ConfigurationField.MODEL, "demo", None, None),
            FieldDiff(
                ConfigurationField.INSTRUCTIONS,
                "Write reports.\n",
                "Write short reports.\n",
                "--- a/instructions\n+++ b/instructions\n@@ -1 +1 @@\n-Write reports.\n+Write short reports.\n",
            ),
        ],
    ),
)

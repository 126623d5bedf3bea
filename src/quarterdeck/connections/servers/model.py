"""Records of MCP servers and of the tools that are known of them."""

from typing import Annotated, Any, ClassVar
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict

from quarterdeck.connections.mcp.model import McpTarget
from quarterdeck.core.actors import ActorBody
from quarterdeck.core.example_ids import ADA, CREDENTIAL, EVENING, MCP_SERVER, MORNING
from quarterdeck.core.text_types import MAX_URL_CHARACTERS, Line, Moment

McpServerName = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9][a-z0-9-]{0,31}(?![\s\S])",
        description="Lower-case letters, digits and `-`. The first part of the names of its tools: `name__tool`.",
    ),
]
Url = Annotated[
    str,
    Meta(
        max_length=MAX_URL_CHARACTERS,
        pattern="^https?://",
        description="Endpoint for streamable HTTP: https with a public address, unless the operator allows others.",
    ),
]
Command = Annotated[Line, Meta(description="Name of a command that the operator configured. It is started over stdio.")]


class McpServerWithUrl(Struct, frozen=True):
    name: McpServerName
    url: Url
    command: None = None
    credential_id: Annotated[UUID | None, Meta(description="Credential for requests to `url`.")] = None


class McpServerWithCommand(Struct, frozen=True):
    name: McpServerName
    command: Command
    url: None = None
    credential_id: None = None


class CreateMcpServerBody(Struct, frozen=True):
    """Either `url` or `command`."""

    # For the OpenAPI document.
    one_of: ClassVar = (McpServerWithUrl, McpServerWithCommand)

    name: McpServerName
    url: Url | None = None
    command: Command | None = None
    credential_id: Annotated[UUID | None, Meta(description="Credential for requests to `url`.")] = None


class ChangeMcpServerBody(Struct, frozen=True):
    """Changes only the given fields. A `url` replaces a `command`, and the other way round."""

    name: McpServerName | UnsetType = UNSET
    url: Url | UnsetType | None = UNSET
    command: Command | UnsetType | None = UNSET
    credential_id: UUID | UnsetType | None = UNSET


class McpServerBody(Struct, frozen=True, kw_only=True):
    id: UUID
    name: str
    url: Annotated[str | None, Meta(description="null: the server is a command.")]
    command: Annotated[str | None, Meta(description="null: the server has a URL.")]
    credential_id: UUID | None
    checked_at: Annotated[Moment | None, Meta(description="Time of the last check. null: never.")]
    check_failure: Annotated[str | None, Meta(description="Why the last check failed. null: it did not.")]
    tool_count: Annotated[int, Meta(description="Number of known tools.")]
    created_at: Moment
    created_by: ActorBody
    revision: Annotated[int, Meta(description="Number of changes. The ETag is derived from it.")]


class McpToolBody(Struct, frozen=True, kw_only=True):
    """Name, description and parameters are the words of the server."""

    name: Annotated[str, Meta(description="As the server calls it.")]
    full_name: Annotated[str, Meta(description="As the model and the tool policy call it: `server__tool`.")]
    description: str
    parameters: Annotated[dict[str, Any], Meta(description="JSON Schema of the arguments.")]
    read_only: Annotated[bool, Meta(description="The server's claim that the tool only reads. It grants nothing.")]


class McpServerDetailBody(McpServerBody, frozen=True, kw_only=True):
    tools: Annotated[
        list[McpToolBody],
        Meta(description="Known tools: as listed by the last check that succeeded, or as first seen by a run."),
    ]


class McpServerPage(Struct, frozen=True):
    items: list[McpServerBody]
    next_cursor: UUID | None


class McpCheckBody(Struct, frozen=True, kw_only=True):
    ok: bool
    reason: Annotated[str | None, Meta(description="Why the check failed. null: it did not.")]
    checked_at: Moment
    tools: Annotated[list[McpToolBody], Meta(description="What the server offers now. Empty if the check failed.")]
    added: Annotated[list[str], Meta(description="Names of tools that were not known before.")]
    changed: Annotated[list[str], Meta(description="Names of tools whose definition was another one before.")]
    removed: Annotated[list[str], Meta(description="Names of tools that the server no longer offers.")]


class FoundTargets(Struct, frozen=True):
    """What a run can connect to, in the order of its configuration."""

    targets: list[McpTarget]
    # Ids of servers that no longer exist.
    deleted: list[UUID]


_URL = "https://tickets.example.com/mcp"

_SERVER = McpServerBody(
    id=MCP_SERVER,
    name="tickets",
    url=_URL,
    command=None,
    credential_id=CREDENTIAL,
    checked_at=EVENING,
    check_failure=None,
    tool_count=1,
    created_at=MORNING,
    created_by=ADA,
    revision=1,
)
_TOOL = McpToolBody(
    name="find",
    full_name="tickets__find",
    description="Finds tickets by their text.",
    parameters={"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    read_only=True,
)

EXAMPLES = (
    # Without a credential: generated tests send it as it is.
    CreateMcpServerBody("tickets", _URL),
    ChangeMcpServerBody(name="issues"),
    _SERVER,
    _TOOL,
    McpServerDetailBody(**asdict(_SERVER), tools=[_TOOL]),
    McpServerPage([_SERVER], None),
    McpCheckBody(ok=True, reason=None, checked_at=EVENING, tools=[_TOOL], added=[_TOOL.name], changed=[], removed=[]),
)

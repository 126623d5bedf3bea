"""Example values for the OpenAPI document."""

from msgspec.structs import asdict

from quarterdeck.connections.servers.model import (
    ChangeMcpServerBody,
    CreateMcpServerBody,
    McpCheckBody,
    McpServerBody,
    McpServerDetailBody,
    McpServerPage,
    McpToolBody,
)
from quarterdeck.core.example_ids import ADA, CREDENTIAL, EVENING, MCP_SERVER, MORNING

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

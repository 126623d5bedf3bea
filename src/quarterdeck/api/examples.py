"""One example value of each request and response type, for the OpenAPI document."""

from typing import Any

from msgspec import Struct

from quarterdeck.activity import examples as activity
from quarterdeck.agent_definitions import examples as agent_definitions
from quarterdeck.agent_stats import examples as agent_stats
from quarterdeck.agents import examples as agents
from quarterdeck.api_keys import examples as api_keys
from quarterdeck.audit import examples as audit
from quarterdeck.auth import examples as auth
from quarterdeck.conversations.actions import examples as actions
from quarterdeck.conversations.events import examples as events
from quarterdeck.conversations.runs import examples as runs
from quarterdeck.conversations.session_tokens import examples as session_tokens
from quarterdeck.conversations.sessions import examples as sessions
from quarterdeck.conversations.workspace_files import examples as workspace_files
from quarterdeck.credentials import examples as credentials
from quarterdeck.files import examples as files
from quarterdeck.mcp_servers import examples as mcp_servers
from quarterdeck.skills import examples as skills
from quarterdeck.usage import examples as usage
from quarterdeck.webhooks import examples as webhooks
from quarterdeck.workspaces import examples as workspaces

_PACKAGES = (
    actions,
    activity,
    agent_definitions,
    agent_stats,
    agents,
    api_keys,
    audit,
    auth,
    credentials,
    events,
    files,
    mcp_servers,
    runs,
    session_tokens,
    sessions,
    skills,
    usage,
    webhooks,
    workspace_files,
    workspaces,
)
EXAMPLES: dict[Any, Struct] = {type(example): example for package in _PACKAGES for example in package.EXAMPLES}

"""One example value of each request and response type, for the OpenAPI document."""

from typing import Any

from msgspec import Struct

from quarterdeck.agents import examples as agent_definitions
from quarterdeck.api_keys import examples as api_keys
from quarterdeck.auth import examples as auth
from quarterdeck.changes.audit import examples as audit
from quarterdeck.connections.credentials import examples as credentials
from quarterdeck.connections.servers import examples as mcp_servers
from quarterdeck.events import examples as events
from quarterdeck.files import examples as files
from quarterdeck.insights.activity import examples as activity
from quarterdeck.insights.agent_stats import examples as agent_stats
from quarterdeck.insights.usage import examples as usage
from quarterdeck.models import examples as agents
from quarterdeck.runs import examples as runs
from quarterdeck.runs.actions import examples as actions
from quarterdeck.session_files import examples as workspace_files
from quarterdeck.sessions import examples as sessions
from quarterdeck.sessions.tokens import examples as session_tokens
from quarterdeck.skills import examples as skills
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

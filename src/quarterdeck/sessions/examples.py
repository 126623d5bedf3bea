"""Examples of sessions for the OpenAPI document."""

from msgspec.structs import asdict

from quarterdeck.agents.configuration import ConfigurationField, Limit, Limits
from quarterdeck.core.example_ids import ADA, AGENT, MORNING, RUN, SESSION, WORKSPACE
from quarterdeck.models.model import ModelOptions, ToolRule
from quarterdeck.runs.model import RunState, Usage
from quarterdeck.sandbox.manifest import WorkspaceKind
from quarterdeck.sessions.model import (
    ActiveRun,
    ChangeSessionBody,
    CreateSessionBody,
    ForkSessionBody,
    LastRun,
    ListedSession,
    SessionAgent,
    SessionBody,
    SessionPage,
    SessionSummary,
)

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
        workspace=WorkspaceKind.SANDBOX,
        mcp_servers=[],
        output_schema=None,
        usage=Usage(5200, 4096, 840, 0.0107),
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
)

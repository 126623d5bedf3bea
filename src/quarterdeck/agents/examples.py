"""Examples of agents for the OpenAPI document."""

from uuid import UUID

from msgspec.structs import asdict

from quarterdeck.agents.configuration import AgentConfiguration, ConfigurationField, Limit, Limits
from quarterdeck.agents.model import (
    AgentBody,
    AgentDiffBody,
    AgentPage,
    AgentVersionBody,
    AgentVersionItem,
    AgentVersionPage,
    ChangeAgentBody,
    CreateAgentBody,
    FieldDiff,
)
from quarterdeck.core.example_ids import ADA, AGENT, MORNING, WORKSPACE
from quarterdeck.models.model import ModelOptions, ToolRule

# Can be sent as it is: no skill or server of the workspace is named.
_CONFIGURATION = AgentConfiguration(
    model="demo",
    settings=ModelOptions(temperature=0.2),
    instructions="You write incident reports.",
    tool_policy={"add_note": ToolRule.ALLOW},
    limits=Limits(run=Limit(max_cost_usd=2.0)),
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

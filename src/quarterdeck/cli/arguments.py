"""Arguments that name an object: an ID, the beginning of an ID, or a name. `find.py` looks them up."""

from typing import Annotated

import typer

from quarterdeck.cli import completion
from quarterdeck.cli.options import text

SESSION_HELP = "ID, ID prefix or title of the session."

SessionId = Annotated[
    str, typer.Argument(parser=text, metavar="SESSION", help=SESSION_HELP, autocompletion=completion.sessions)
]
RunId = Annotated[
    str,
    typer.Argument(parser=text, metavar="RUN", help="ID or ID prefix of the run.", autocompletion=completion.runs),
]
RetryableRunId = Annotated[
    str,
    typer.Argument(
        parser=text, metavar="RUN", help="ID or ID prefix of the run.", autocompletion=completion.retryable_runs
    ),
]
SessionOfRun = Annotated[
    str | None,
    typer.Option(
        "--session",
        parser=text,
        metavar="SESSION",
        help="Session in which to look up an ID prefix. Default: the 20 newest sessions.",
        autocompletion=completion.sessions,
    ),
]
ActionId = Annotated[
    str,
    typer.Argument(
        parser=text, metavar="ACTION", help="ID or ID prefix of the action.", autocompletion=completion.actions
    ),
]
SkillId = Annotated[
    str,
    typer.Argument(
        parser=text, metavar="SKILL", help="ID, ID prefix or name of the skill.", autocompletion=completion.skills
    ),
]
KeyId = Annotated[
    str,
    typer.Argument(
        parser=text, metavar="KEY", help="ID, ID prefix or label of the key.", autocompletion=completion.keys
    ),
]
WebhookId = Annotated[
    str,
    typer.Argument(
        parser=text,
        metavar="WEBHOOK",
        help="ID, ID prefix, description or URL of the webhook.",
        autocompletion=completion.webhooks,
    ),
]
AgentId = Annotated[
    str,
    typer.Argument(
        parser=text, metavar="AGENT", help="ID, ID prefix or name of the agent.", autocompletion=completion.agents
    ),
]
AgentOption = Annotated[
    str | None,
    typer.Option(
        "--agent",
        parser=text,
        metavar="AGENT[@VERSION]",
        help="ID or name of the agent that the session uses.",
        autocompletion=completion.agents,
    ),
]
McpServerId = Annotated[
    str,
    typer.Argument(
        parser=text,
        metavar="SERVER",
        help="ID, ID prefix or name of the MCP server.",
        autocompletion=completion.mcp_servers,
    ),
]
CredentialId = Annotated[
    str,
    typer.Argument(
        parser=text,
        metavar="CREDENTIAL",
        help="ID, ID prefix or name of the credential.",
        autocompletion=completion.credentials,
    ),
]

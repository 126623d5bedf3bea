"""`qd chat` and `qd watch`: a session in the terminal."""

from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from quarterdeck.cli import completion, find, session_options
from quarterdeck.cli.arguments import SESSION_HELP, AgentOption, SessionId
from quarterdeck.cli.connection import ConnectionInfo, client_for, connect
from quarterdeck.cli.exit_codes import UsageError
from quarterdeck.cli.options import Profile, line, text
from quarterdeck.core.ids import parse_id

if TYPE_CHECKING:
    from quarterdeck.client.models import AgentReference


def chat_command(
    session: Annotated[
        str | None,
        typer.Argument(
            parser=text,
            metavar="SESSION",
            help=f"{SESSION_HELP} Default: create a new one.",
            autocompletion=completion.sessions,
        ),
    ] = None,
    agent: AgentOption = None,
    title: Annotated[str | None, typer.Option(parser=line, metavar="TITLE", help="Title of the new session.")] = None,
    model: Annotated[
        str | None,
        typer.Option(
            parser=line,
            metavar="MODEL",
            help="Model of the new session. Default: set by the server.",
            autocompletion=completion.models,
        ),
    ] = None,
    profile: Profile = None,
) -> None:
    """Chat in a session. A message starts a run, or steers the current one."""
    if session is not None and any(given is not None for given in (agent, title, model)):
        raise UsageError("--agent, --title and --model are for new sessions only")
    import asyncio

    from quarterdeck.cli.chat_runner import chat

    info = connect(profile)
    session_id = None if session is None else _session_id(info, session)
    reference = None if agent is None else _agent(info, agent)
    raise typer.Exit(asyncio.run(chat(info, session_id, agent=reference, title=title, model=model)))


def watch_command(
    session: SessionId,
    after: Annotated[int, typer.Option(min=0, metavar="N", help="Start after the event with this ID.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print each event as one line of JSON.")] = False,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="Exit when no run is active.")] = False,
    profile: Profile = None,
) -> None:
    """Follow the log of a session."""
    import asyncio

    from quarterdeck.cli.watch import watch

    info = connect(profile)
    asyncio.run(watch(info, _session_id(info, session), after, as_json=as_json, until_idle=until_idle))


def _agent(info: ConnectionInfo, given: str) -> "AgentReference":
    with client_for(info) as client:
        return session_options.agent(client, given)


def _session_id(info: ConnectionInfo, given: str) -> UUID:
    if (found := parse_id(given)) is not None:
        return found
    with client_for(info) as client:
        return find.session_id(client, given)

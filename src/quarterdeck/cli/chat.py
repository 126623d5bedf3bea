"""`qd chat` and `qd watch`: a session in the terminal."""

from typing import Annotated
from uuid import UUID

import typer

from quarterdeck.cli.connection import connect
from quarterdeck.cli.options import Profile, line, uuid

app = typer.Typer(rich_markup_mode=None)


@app.command("chat")
def chat_command(
    session: Annotated[
        UUID | None,
        typer.Argument(parser=uuid, metavar="[SESSION]", help="ID of the session. Default: create a new one."),
    ] = None,
    title: Annotated[str | None, typer.Option(parser=line, metavar="TITLE", help="Title of the new session.")] = None,
    model: Annotated[
        str | None,
        typer.Option(parser=line, metavar="MODEL", help="Model of the new session. Default: set by the server."),
    ] = None,
    profile: Profile = None,
) -> None:
    """Chat in a session. A message starts a run, or steers the current one."""
    if session is not None and (title is not None or model is not None):
        raise typer.BadParameter("--title and --model are for new sessions only")
    import asyncio

    from quarterdeck.cli.chat_runner import chat

    raise typer.Exit(asyncio.run(chat(connect(profile), session, title=title, model=model)))


@app.command("watch")
def watch_command(
    session: Annotated[UUID, typer.Argument(parser=uuid, metavar="SESSION", help="ID of the session.")],
    after: Annotated[int, typer.Option(min=0, metavar="N", help="Start after the event with this ID.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print each event as one line of JSON.")] = False,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="Exit when no run is active.")] = False,
    profile: Profile = None,
) -> None:
    """Follow the log of a session."""
    import asyncio

    from quarterdeck.cli.watch import watch

    asyncio.run(watch(connect(profile), session, after, as_json=as_json, until_idle=until_idle))

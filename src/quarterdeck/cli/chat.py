"""`qd chat` and `qd watch`: a session in the terminal."""

from typing import Annotated
from uuid import UUID

import typer

from quarterdeck.cli.connection import connect
from quarterdeck.core.ids import parse_id


def _session_id(text: str) -> UUID:
    found = parse_id(text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is not a UUID")
    return found


app = typer.Typer(rich_markup_mode=None)

Profile = Annotated[str | None, typer.Option(help="Which server and key to use.")]


@app.command("chat")
def chat_command(
    session: Annotated[
        UUID | None, typer.Argument(parser=_session_id, metavar="[SESSION]", help="Its id. Default: a new one.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="What to call a new session.")] = None,
    model: Annotated[str | None, typer.Option(help="What a new session is driven by.")] = None,
    profile: Profile = None,
) -> None:
    """Talk in a session: what you send starts a run, or steers the one that is under way."""
    if session is not None and (title is not None or model is not None):
        raise typer.BadParameter("--title and --model are for new sessions")
    import asyncio

    from quarterdeck.cli.chat_runner import chat

    raise typer.Exit(asyncio.run(chat(connect(profile), session, title=title, model=model)))


@app.command("watch")
def watch_command(
    session: Annotated[UUID, typer.Argument(parser=_session_id, metavar="SESSION", help="Its id.")],
    after: Annotated[int, typer.Option(min=0, metavar="N", help="Begin behind the entry with this id.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print each entry as a line of JSON.")] = False,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="Leave once nothing runs.")] = False,
    profile: Profile = None,
) -> None:
    """Follow the log of a session."""
    import asyncio

    from quarterdeck.cli.watch import watch

    asyncio.run(watch(connect(profile), session, after, as_json=as_json, until_idle=until_idle))

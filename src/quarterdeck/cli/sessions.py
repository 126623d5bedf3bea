"""`qd sessions` and `qd send`."""

from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from quarterdeck.cli import runs
from quarterdeck.cli.connection import open_client
from quarterdeck.cli.exit_codes import ExitCode
from quarterdeck.cli.options import AsJson, Limit, Profile, Yes, confirm, file_name, line, text, uuid
from quarterdeck.cli.output import (
    actor_name,
    date_text,
    note,
    print_facts,
    print_json,
    print_list,
    print_table,
    read_input,
    say,
)

if TYPE_CHECKING:
    from quarterdeck.client import Client
    from quarterdeck.client.models import ModelOptions, SessionSkill, SessionSummary, SubmitKindBody

app = typer.Typer(rich_markup_mode=None, help="Manage sessions.")


class SearchIn(StrEnum):
    TITLES = "titles"
    CONVERSATIONS = "conversations"


SessionId = Annotated[UUID, typer.Argument(parser=uuid, metavar="SESSION", help="ID of the session.")]
_LAST_RUNS = 5


@app.command("list")
def list_(
    archived: Annotated[bool, typer.Option("--archived", help="List archived sessions.")] = False,
    search: Annotated[
        str | None, typer.Option(parser=text, metavar="TEXT", help="Only sessions with this in their title.")
    ] = None,
    search_in: Annotated[
        SearchIn, typer.Option("--in", metavar="PLACE", help="Where to search: titles or conversations.")
    ] = SearchIn.TITLES,
    limit: Limit = 50,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """List sessions, newest first."""
    with open_client(profile) as client:
        print_list(
            client.iter_sessions(archived=archived, search=search, in_=search_in.value if search else None),
            limit,
            ("ID", "TITLE", "MODEL", "CREATED"),
            _row,
            as_json=as_json,
            empty="No sessions found." if search else "No archived sessions." if archived else "No sessions yet.",
        )


@app.command()
def create(
    title: Annotated[str | None, typer.Option(parser=line, metavar="TITLE", help="Title of the session.")] = None,
    model: Annotated[
        str | None,
        typer.Option(parser=line, metavar="MODEL", help="provider:name, or demo. Default: set by the server."),
    ] = None,
    instructions: Annotated[
        str | None, typer.Option(parser=text, metavar="TEXT", help="Instructions for the agent.")
    ] = None,
    instructions_file: Annotated[
        str | None, typer.Option(parser=file_name, metavar="FILE", help="Read the instructions from a file.")
    ] = None,
    skill: Annotated[
        list[str] | None, typer.Option(metavar="SKILL[@VERSION]", help="ID or name of a skill. Can be repeated.")
    ] = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Create a session and print its ID."""
    if instructions_file is not None:
        if instructions is not None:
            raise typer.BadParameter("use either --instructions or --instructions-file")
        instructions = _read_file(instructions_file)
    with open_client(profile) as client:
        skills = [_skill(client, each) for each in skill or []]
        session = client.create_session(title=title, model=model, instructions=instructions, skills=skills)
    if as_json:
        print_json(session)
    else:
        say(str(session.id))


@app.command()
def show(session_id: SessionId, profile: Profile = None, as_json: AsJson = False) -> None:
    """Show a session and its last runs."""
    with open_client(profile) as client:
        session = client.get_session(session_id)
        last = list(islice(client.iter_session_runs(session_id, page_size=_LAST_RUNS), _LAST_RUNS))
    if as_json:
        print_json({"session": session, "runs": last})
        return
    used = [f"{one.skill_id}{f'@{one.version}' if one.version else ''}" for one in session.skills]
    print_facts(
        [
            ("session", str(session.id)),
            ("title", session.title),
            ("model", session.model or f"Default ({session.effective_model})"),
            ("settings", "\n".join(_settings(session.settings)) or None),
            ("tokens", f"{session.usage.input_tokens} in, {session.usage.output_tokens} out"),
            ("instructions", session.instructions),
            ("skills", "\n".join(used) or None),
            ("created", f"{date_text(session.created_at)} by {actor_name(session.created_by)}"),
            ("archived", date_text(session.archived_at) or None),
        ]
    )
    say("")
    print_table(("ID", "STATE", "INPUTS", "STEPS", "CREATED", "FAILURE"), map(runs.row, last), empty="No runs yet.")


@app.command()
def archive(session_id: SessionId, profile: Profile = None) -> None:
    """Archive a session. It then accepts no input."""
    with open_client(profile) as client:
        client.change_session(session_id, archived=True)
    say(f"archived {session_id}")


@app.command()
def unarchive(session_id: SessionId, profile: Profile = None) -> None:
    """Restore an archived session."""
    with open_client(profile) as client:
        client.change_session(session_id, archived=False)
    say(f"unarchived {session_id}")


@app.command()
def delete(session_id: SessionId, yes: Yes = False, profile: Profile = None) -> None:
    """Delete a session with its log, runs and tokens. This can't be undone."""
    with open_client(profile) as client:
        if not yes:
            found = client.get_session(session_id)
            confirm(f"Delete {found.title or session_id} and its whole log?", yes=yes)
        client.delete_session(session_id)
    say(f"deleted {session_id}")


def send(
    session_id: SessionId,
    message: Annotated[
        str, typer.Argument(parser=text, metavar="TEXT", help="The message. Use - to read it from stdin.")
    ],
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the run and print the answer.")] = False,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Send a message. It starts a run, or steers the current one."""
    with open_client(profile) as client:
        sent = client.submit_input(session_id, text=read_input(message))
        if wait:
            raise typer.Exit(_wait(client, session_id, sent, as_json=as_json))
    if as_json:
        print_json(sent)
    else:
        say(f"{sent.outcome} {sent.run_id}")


def _wait(client: "Client", session_id: UUID, sent: "SubmitKindBody", *, as_json: bool) -> int:
    """Returns the exit code. The answer goes to stdout, everything else to stderr."""
    from quarterdeck.client import Event

    note(f"{sent.outcome} {sent.run_id}")
    messages: list[str] = []
    for event in client.events(session_id):
        if not isinstance(event, Event) or event.run_id != sent.run_id:
            continue
        if event.type == "message" and event.data["text"]:
            messages.append(event.data["text"])
        elif event.type in ("run.succeeded", "run.failed", "run.cancelled"):
            break
    run = client.get_run(sent.run_id)
    if as_json:
        print_json({"outcome": sent.outcome, "run": run, "messages": messages})
    elif messages:
        say("\n\n".join(messages))
    if run.state == "succeeded":
        return 0
    note(f"{run.state}{f': {run.failure}' if run.failure else ''}")
    return ExitCode.UNSUCCESSFUL


def _skill(client: "Client", given: str) -> "SessionSkill":
    from quarterdeck.cli.skills import find_skill
    from quarterdeck.client.models import SessionSkill

    name, at, version = given.rpartition("@")
    if at and version.isascii() and version.isdigit():
        return SessionSkill(find_skill(client, name).id, int(version))
    return SessionSkill(find_skill(client, given).id)


def _settings(settings: "ModelOptions") -> list[str]:
    values = {
        "temperature": settings.temperature,
        "max output tokens": settings.max_output_tokens,
        "reasoning effort": settings.reasoning_effort,
    }
    return [f"{name}: {value}" for name, value in values.items() if value is not None]


def _read_file(name: str) -> str:
    try:
        return Path(name).read_text("utf-8")
    except OSError as error:
        raise typer.BadParameter(f"{name}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise typer.BadParameter(f"{name}: not valid UTF-8") from None


def _row(session: "SessionSummary") -> list[str]:
    return [str(session.id), session.title or "", session.model or "", date_text(session.created_at)]

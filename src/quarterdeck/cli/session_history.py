"""`qd sessions fork`, `export` and `discard`."""

from typing import Annotated, Literal
from uuid import UUID

import typer

from quarterdeck.cli import find
from quarterdeck.cli.arguments import SessionId
from quarterdeck.cli.connection import open_client
from quarterdeck.cli.exit_codes import CliError, ExitCode
from quarterdeck.cli.options import AsJson, Profile, file_name, uuid
from quarterdeck.cli.output import document_output, print_json, say, size

InputId = Annotated[UUID, typer.Argument(parser=uuid, metavar="INPUT", help="ID of the input, as in the log.")]


def fork(
    session_id: SessionId,
    before: Annotated[
        int | None,
        typer.Option(min=1, max=2**63 - 1, metavar="EVENT", help="Copy only the events before this one."),
    ] = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Copy a session with its history and print the new ID."""
    with open_client(profile) as client:
        session = client.fork_session(find.session_id(client, session_id), before_event_id=before)
    if as_json:
        print_json(session)
    else:
        say(str(session.id))


def export(
    session_id: SessionId,
    markdown: Annotated[bool, typer.Option("--markdown", help="Write Markdown instead of JSON Lines.")] = False,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", parser=file_name, metavar="FILE", help="Output file. Default: stdout."),
    ] = None,
    profile: Profile = None,
) -> None:
    """Write the log of a session as JSON Lines or Markdown."""
    media_type: Literal["application/jsonl", "text/markdown"] = "text/markdown" if markdown else "application/jsonl"
    with open_client(profile) as client:
        found_id = find.session_id(client, session_id)
        if output is None or output == "-":
            with document_output() as out:
                client.export_session(found_id, out, media_type=media_type)
            return
        try:
            count = client.export_session(found_id, output, media_type=media_type)
        except OSError as error:
            raise CliError(f"{output}: {error.strerror}", ExitCode.INVALID_INPUT) from None
    say(f"wrote {output} ({size(count)})")


def discard(session_id: SessionId, input_id: InputId, profile: Profile = None) -> None:
    """Withdraw an unread input, or drop one whose run failed."""
    with open_client(profile) as client:
        client.discard_input(find.session_id(client, session_id), input_id)
    say(f"discarded {input_id}")

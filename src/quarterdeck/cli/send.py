"""`qd send`."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Any
from uuid import UUID

from msgspec import UNSET

from quarterdeck.cli import find
from quarterdeck.cli.action_text import required, resolve_command
from quarterdeck.cli.commands import with_client
from quarterdeck.cli.conversation import cut_off_text, sources_text
from quarterdeck.cli.errors import ExitCode
from quarterdeck.cli.files import checked_file
from quarterdeck.cli.options import SessionId, argument, choice, file_name, flag, option, read_input
from quarterdeck.cli.output import Result, note, progress_bar
from quarterdeck.client import ApiError, Client, Event, QuarterdeckError
from quarterdeck.client.models import Delivery, EventType, Priority, RunState, SubmitKindBody
from quarterdeck.client.requests import Id
from quarterdeck.client.tool_calls import RUN_ENDS
from quarterdeck.core.ids import parse_id


@with_client
def send(
    client: Client,
    session_id: SessionId,
    message: Annotated[str, argument("TEXT", "The message. Use - to read it from stdin.")],
    wait: Annotated[bool, flag("--wait", "Wait for the run and print the answer.")] = False,
    delivery: Annotated[
        str,
        choice(
            "HOW",
            "If a run is active: steer it (default), queue a run after it, or interrupt it and start a new one.",
            values=Delivery,
        ),
    ] = "steer",
    batch: Annotated[bool, flag("--batch", "Start a run that may take hours and costs half.")] = False,
    attach: Annotated[
        list[str] | None, option("FILE", "File, or ID of an uploaded file. Can be repeated.", parser=file_name)
    ] = None,
) -> Result:
    """Send a message. It starts a run, or steers the current one."""
    content = read_input(message)
    for file in attach or []:
        if parse_id(file) is None:
            checked_file(file)
    found_id = find.session_id(client, session_id)
    with uploaded(client, attach or []) as attachments:
        sent = client.submit_input(
            found_id,
            text=content,
            delivery=Delivery(delivery),
            attachments=attachments or UNSET,
            priority=Priority.BATCH if batch else UNSET,
        )
    return _wait(client, found_id, sent) if wait else Result(sent, f"{sent.outcome} {sent.run_id}")


@contextmanager
def uploaded(client: Client, files: list[str]) -> Iterator[list[Id]]:
    """The IDs of the files. If the server refuses the input, the files that were uploaded for it are deleted."""
    found: list[Id] = []
    new: list[UUID] = []
    for file in files:
        if (file_id := parse_id(file)) is None:
            with progress_bar(f"Uploading {file}") as progress:
                file_id = client.upload(file, progress=progress).id
            new.append(file_id)
        found.append(file_id)
    try:
        yield found
    except ApiError as error:
        for file_id in new if error.status < 500 else []:
            with suppress(QuarterdeckError):
                client.delete_file(file_id)
        raise


def _wait(client: Client, session_id: UUID, sent: SubmitKindBody) -> Result:
    """The answer goes to stdout, everything else to stderr."""
    note(f"{sent.outcome} {sent.run_id}")
    answers: list[dict[str, Any]] = []
    for event in client.events(session_id):
        if not isinstance(event, Event) or event.run_id != sent.run_id:
            continue
        if event.type == EventType.MESSAGE:
            answers.append(event.data)
        elif event.type == EventType.ACTION_REQUIRED:
            note(f"{required(event.data)}\nAnswer with: {resolve_command(event.data)}")
        elif event.type in RUN_ENDS:
            break
    run = client.get_run(sent.run_id)
    messages = [data["text"] for data in answers if data["text"]]
    cut_off = answers[-1].get("cut_off") if answers else None
    hints = [hint for data in answers for hint in (sources_text(data), cut_off_text(data)) if hint]
    if not (has_succeeded := run.state is RunState.SUCCEEDED):
        hints.append(f"{run.state}{f': {run.failure}' if run.failure else ''}")
    return Result(
        {"outcome": sent.outcome, "run": run, "messages": messages, "cut_off": cut_off},
        "\n\n".join(messages),
        hint="\n".join(hints),
        exit_code=0 if has_succeeded else ExitCode.UNSUCCESSFUL,
    )

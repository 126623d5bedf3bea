"""`qd runs`."""

from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from quarterdeck.cli.connection import open_client
from quarterdeck.cli.options import AsJson, Profile, uuid
from quarterdeck.cli.output import date_text, note, print_facts, print_json, say

if TYPE_CHECKING:
    from quarterdeck.client.models import RunBody

app = typer.Typer(rich_markup_mode=None, help="Show, cancel and retry runs.")

RunId = Annotated[UUID, typer.Argument(parser=uuid, metavar="ID", help="ID of the run.")]


@app.command()
def show(run_id: RunId, profile: Profile = None, as_json: AsJson = False) -> None:
    """Get a run."""
    with open_client(profile) as client:
        run = client.get_run(run_id)
    if as_json:
        print_json(run)
        return
    print_facts(
        [
            ("run", str(run.id)),
            ("session", str(run.session_id)),
            ("state", run.state),
            ("failure", run.failure),
            ("inputs", f"{run.inputs_consumed} of {run.inputs_accepted} read"),
            ("steps", str(run.steps)),
            ("attempts", str(run.attempts)),
            ("tokens", f"{run.usage.input_tokens} in, {run.usage.output_tokens} out"),
            ("created", date_text(run.created_at)),
            ("started", date_text(run.started_at) or None),
            ("finished", date_text(run.finished_at) or None),
        ]
    )


@app.command()
def cancel(run_id: RunId, profile: Profile = None, as_json: AsJson = False) -> None:
    """Cancel a run. A finished run does not change."""
    with open_client(profile) as client:
        run = client.cancel_run(run_id)
    if as_json:
        print_json(run)
        return
    say(f"{run.state} {run.id}")
    if run.discarded_input_ids:
        note(f"Discarded {len(run.discarded_input_ids)} of its inputs, which the run had not read yet.")


@app.command()
def retry(run_id: RunId, profile: Profile = None, as_json: AsJson = False) -> None:
    """Start a new run with the inputs of a failed or cancelled run."""
    with open_client(profile) as client:
        run = client.retry_run(run_id)
    if as_json:
        print_json(run)
        return
    say(f"{run.state} {run.id}")


def row(run: "RunBody") -> list[str]:
    created = date_text(run.created_at)
    return [str(run.id), run.state, str(run.inputs_accepted), str(run.steps), created, run.failure or ""]

"""`qd runs`: what an agent did, and how to stop it."""

from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from quarterdeck.cli.connection import open_client
from quarterdeck.cli.options import AsJson, Profile, uuid
from quarterdeck.cli.output import note, print_facts, print_json, say, when

if TYPE_CHECKING:
    from quarterdeck.conversations.runs.model import RunBody

app = typer.Typer(rich_markup_mode=None, help="Look at runs and cancel them.")

RunId = Annotated[UUID, typer.Argument(parser=uuid, metavar="ID", help="Id of the run.")]


@app.command()
def show(run_id: RunId, profile: Profile = None, as_json: AsJson = False) -> None:
    """Show a run."""
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
            ("inputs", f"{run.inputs_consumed} of {run.inputs_accepted} taken up"),
            ("steps", str(run.steps)),
            ("attempts", str(run.attempts)),
            ("tokens", f"{run.usage.input_tokens} in, {run.usage.output_tokens} out"),
            ("created", when(run.created_at)),
            ("started", when(run.started_at) or None),
            ("finished", when(run.finished_at) or None),
        ]
    )


@app.command()
def cancel(run_id: RunId, profile: Profile = None, as_json: AsJson = False) -> None:
    """End a run at once. One that has ended stays as it is."""
    with open_client(profile) as client:
        run = client.cancel_run(run_id)
    if as_json:
        print_json(run)
        return
    say(f"{run.state} {run.id}")
    if run.discarded_input_ids:
        note(f"{len(run.discarded_input_ids)} of its inputs had not been taken up and are discarded.")


def row(run: "RunBody") -> list[str]:
    return [str(run.id), run.state, str(run.inputs_accepted), str(run.steps), when(run.created_at), run.failure or ""]

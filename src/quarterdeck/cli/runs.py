"""`qd runs`."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer

from quarterdeck.cli import completion, find
from quarterdeck.cli.action_text import fields_of, required, resolve_command, tokens_text
from quarterdeck.cli.connection import open_client
from quarterdeck.cli.options import AsJson, Limit, Profile, RunId, SessionId, SessionOfRun, argument
from quarterdeck.cli.output import Column, cost_text, count_text, note, print_facts, print_json, print_list, say
from quarterdeck.client import Client, Forbidden, NotFound
from quarterdeck.client.models import RunBody

app = typer.Typer(rich_markup_mode=None, help="List, show, cancel and retry runs.")

RetryableRunId = Annotated[str, argument("RUN", "ID or ID prefix of the run.", complete=completion.retryable_runs)]

COLUMNS = (
    "ID",
    "STATE",
    Column("INPUTS", right=True),
    Column("STEPS", right=True),
    Column("TOKENS IN", right=True),
    Column("CACHED", right=True),
    Column("OUT", right=True),
    Column("COST", right=True),
    Column("DURATION", right=True),
    "CREATED",
    "FAILURE",
)

_MAX_ACTIONS_SHOWN = 10


@app.command("list")
def list_(session_id: SessionId, limit: Limit = 50, profile: Profile = None, as_json: AsJson = False) -> None:
    """List the runs of a session, newest first."""
    with open_client(profile) as client:
        print_list(
            client.iter_session_runs(find.session_id(client, session_id)),
            COLUMNS,
            row,
            "No runs yet.",
            limit,
            as_json=as_json,
        )


@app.command()
def show(run_id: RunId, session: SessionOfRun = None, profile: Profile = None, as_json: AsJson = False) -> None:
    """Show a run."""
    with open_client(profile) as client:
        run = client.get_run(find.run_id(client, run_id, session))
        waiting = None if as_json else waiting_text(client, [run])
    if as_json:
        print_json(run)
        return
    print_facts(
        [
            ("run", run.id),
            ("session", run.session_id),
            ("state", run.state),
            ("waiting for", waiting),
            ("failure", run.failure),
            ("inputs", f"{run.inputs_consumed} of {run.inputs_accepted} read"),
            ("steps", run.steps),
            ("attempts", run.attempts),
            ("tokens", tokens_text(run.usage)),
            ("cost", cost_text(run.usage.cost_usd) if run.steps else None),
            ("created", run.created_at),
            ("started", run.started_at),
            ("finished", run.finished_at),
            ("duration", duration_text(run) or None),
            ("waited", seconds_text(run.waited_seconds) if run.waited_seconds else None),
        ]
    )


@app.command()
def cancel(run_id: RunId, session: SessionOfRun = None, profile: Profile = None, as_json: AsJson = False) -> None:
    """Cancel a run. A finished run does not change."""
    with open_client(profile) as client:
        run = client.cancel_run(find.run_id(client, run_id, session))
    if as_json:
        print_json(run)
        return
    say(f"{run.state} {run.id}")
    if run.discarded_input_ids:
        note(f"Discarded {count_text(len(run.discarded_input_ids), 'input')} that the run had not read.")


@app.command()
def retry(
    run_id: RetryableRunId, session: SessionOfRun = None, profile: Profile = None, as_json: AsJson = False
) -> None:
    """Start a new run with the inputs of a failed or cancelled run."""
    with open_client(profile) as client:
        run = client.retry_run(find.run_id(client, run_id, session))
    if as_json:
        print_json(run)
        return
    say(f"{run.state} {run.id}")


def row(run: RunBody) -> list[object]:
    return [
        run.id,
        run.state,
        run.inputs_accepted,
        run.steps,
        run.usage.input_tokens,
        run.usage.cached_tokens,
        run.usage.output_tokens,
        cost_text(run.usage.cost_usd) if run.steps else "",
        duration_text(run),
        run.created_at,
        run.failure,
    ]


def waiting_text(client: Client, runs: Sequence[RunBody]) -> str | None:
    """What the runs wait for, and how to answer. None: no run waits."""
    lines = []
    waiting = [action_id for run in runs for action_id in run.waiting_for]
    for action_id in waiting[:_MAX_ACTIONS_SHOWN]:
        try:
            data = fields_of(client.get_action(action_id))
            lines += [required(data), f"  {resolve_command(data)}"]
        except (Forbidden, NotFound):
            # A session token that may not answer, or an action that was answered meanwhile.
            lines.append(str(action_id))
    if len(waiting) > _MAX_ACTIONS_SHOWN:
        lines.append(f"{len(waiting) - _MAX_ACTIONS_SHOWN} more: qd actions list")
    return "\n".join(lines) or None


def duration_text(run: RunBody) -> str:
    """From start to end, or until now, without the time that it waited for answers. Empty if it has not started."""
    if run.started_at is None:
        return ""
    seconds = ((run.finished_at or datetime.now(UTC)) - run.started_at).total_seconds() - run.waited_seconds
    return seconds_text(seconds)


def seconds_text(seconds: float) -> str:
    if seconds < 60:
        return f"{max(0.0, seconds):.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m {rest}s" if minutes < 60 else f"{minutes // 60}h {minutes % 60}m"

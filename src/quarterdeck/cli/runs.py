"""`qd runs`."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer

from quarterdeck.cli import completion, find
from quarterdeck.cli.action_text import fields_of, required, resolve_command, tokens_text
from quarterdeck.cli.commands import command
from quarterdeck.cli.options import Limit, RunId, SessionId, SessionOfRun, argument
from quarterdeck.cli.output import Page, Result, cost_text, count_text, note, print_facts, say
from quarterdeck.client import Client, Forbidden, NotFound
from quarterdeck.client.models import CancelledRunBody, Priority, RunBody

app = typer.Typer(rich_markup_mode=None)

RetryableRunId = Annotated[str, argument("RUN", "ID or ID prefix of the run.", complete=completion.retryable_runs)]

_COUNTS = (">INPUTS", ">STEPS", ">TOKENS IN", ">CACHED", ">OUT", ">COST", ">DURATION")
COLUMNS = ("ID", "STATE", *_COUNTS, "CREATED", "FAILURE")

_MAX_ACTIONS_SHOWN = 10


@command(app, "list")
def list_(client: Client, session_id: SessionId, limit: Limit = 50) -> Page[RunBody]:
    """List the runs of a session, newest first."""
    found = client.iter_session_runs(find.session_id(client, session_id))
    return Page(found, limit, COLUMNS, row, "No runs yet.")


@command(app)
def show(client: Client, run_id: RunId, session: SessionOfRun = None) -> Result:
    """Show a run."""
    run = client.get_run(find.run_id(client, run_id, session))
    return Result(run, lambda: print_facts(_facts(client, run)))


@command(app)
def cancel(client: Client, run_id: RunId, session: SessionOfRun = None) -> Result:
    """Cancel a run. A finished run does not change."""
    run = client.cancel_run(find.run_id(client, run_id, session))
    return Result(run, lambda: _print_cancelled(run))


@command(app)
def retry(client: Client, run_id: RetryableRunId, session: SessionOfRun = None) -> Result:
    """Start a new run with the inputs of a failed or cancelled run."""
    run = client.retry_run(find.run_id(client, run_id, session))
    return Result(run, f"{run.state} {run.id}")


def _facts(client: Client, run: RunBody) -> list[tuple[str, object]]:
    return [
        ("run", run.id),
        ("session", run.session_id),
        ("state", run.state),
        ("priority", run.priority if run.priority is Priority.BATCH else None),
        ("waiting for", waiting_text(client, [run]) or run.waits_for_model),
        ("model", run.model),
        ("answered by", "\n".join(run.answered_by) if run.answered_by != [run.model] else None),
        ("failure", run.failure),
        ("inputs", f"{run.inputs_consumed} of {run.inputs_accepted} read"),
        ("steps", run.steps),
        ("attempts", run.attempts),
        ("tokens", tokens_text(run.usage)),
        ("cost", cost_text(run.usage.cost_usd) if run.steps else None),
        ("created", run.created_at),
        ("started", run.started_at),
        ("finished", run.finished_at),
        ("duration", duration_text(run)),
        ("waited", seconds_text(run.waited_seconds) if run.waited_seconds else None),
    ]


def _print_cancelled(run: CancelledRunBody) -> None:
    say(f"{run.state} {run.id}")
    if run.discarded_input_ids:
        note(f"Discarded {count_text(len(run.discarded_input_ids), 'input')} that the run had not read.")


def row(run: RunBody) -> list[object]:
    usage, cost = run.usage, cost_text(run.usage.cost_usd) if run.steps else ""
    tokens = (usage.input_tokens, usage.cached_tokens, usage.output_tokens)
    counts = (run.inputs_accepted, run.steps, *tokens, cost)
    return [run.id, run.state, *counts, duration_text(run), run.created_at, run.failure]


def waiting_text(client: Client, runs: Sequence[RunBody]) -> str | None:
    """What the runs wait for, and how to answer. None: no run waits."""
    lines = ["the answer of a batch" for run in runs if run.waits_for_batch_since is not None]
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

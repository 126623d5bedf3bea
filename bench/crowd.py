"""Many runs of one workspace in one worker process at the same time: what they cost it in memory."""

from bench.case import Taken
from bench.moments import moment, most_at_once, ms
from bench.resources import forget_peak, peak_mib
from bench.server import Server
from quarterdeck.events.model import EventType
from quarterdeck.runs.model import RunState

AT_ONCE = 200


async def crowd(server: Server, text: str, runs: int, *, model: str | None = None, **settings: object) -> Taken:
    """Peak of the worker, in MiB."""
    settings |= {"RUN_ACTIVE_PER_WORKSPACE": runs, "WORKER_CONCURRENCY": runs}
    async with server.caller() as caller:
        sessions = await caller.new_sessions(runs, model)
        with server.worker(**settings) as process:
            await caller.warm_up(model)
            forget_peak(process.pid)
            run_ids = [(await caller.submit(session_id, text)).run_id for session_id in sessions]
            for run_id in run_ids:
                ended = await caller.until_ended(run_id)
                assert ended.state is RunState.SUCCEEDED, ended.failure
            peak = peak_mib(process.pid)
        logs = [await caller.log(session_id) for session_id in sessions]
    accepted, started, succeeded = (
        [moment(events, kind) for events in logs]
        for kind in (EventType.INPUT_ACCEPTED, EventType.RUN_STARTED, EventType.RUN_SUCCEEDED)
    )
    notes = {
        "runs at the same time": float(most_at_once(started, succeeded)),
        "until all had started, s": ms(max(started) - min(accepted)) / 1000,
        "until all had succeeded, s": ms(max(succeeded) - min(accepted)) / 1000,
    }
    return Taken(peak, notes=notes)

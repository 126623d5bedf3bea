"""Records what a process does, for its metrics port. Does nothing if there is none.

Like the log, the recorder belongs to the process and is not handed around. The figures are in files that the process
with the port reads (server/metrics_port.py).
"""

import os
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quarterdeck.core.metric_instruments import Instruments

# Set by the process with the port, for itself and the processes that it starts.
_FOLDER_VARIABLE = "QUARTERDECK_METRICS_FOLDER"
# Read by prometheus_client. Others may have set it for programs of their own, so we also have a variable of our own.
_LIBRARY_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_NO_RESPONSE = "none"

_instruments: "Instruments | None" = None


def use_folder(folder: Path) -> None:
    """For this process and those that it starts. Call it before prometheus_client is imported."""
    os.environ[_FOLDER_VARIABLE] = os.environ[_LIBRARY_VARIABLE] = str(folder)


def start(process: str) -> None:
    """Begins to record in this process: `api` or `worker`. Call it after any fork."""
    global _instruments
    if _FOLDER_VARIABLE not in os.environ:
        return
    # Imported here: it takes a while and is seldom needed.
    from quarterdeck.core.metric_instruments import Instruments

    _instruments = Instruments(process)


def response_started(method: str, route: str | None, status: int, seconds: float) -> None:
    """`route`: the path with names in place of values. None: no route matched."""
    if _instruments is not None:
        method, route = _method(method), route or "unmatched"
        _instruments.requests.labels(method, route, str(status)).inc()
        _instruments.request_seconds.labels(method, route).observe(seconds)


def request_aborted(method: str, route: str | None) -> None:
    """The request ended without a response."""
    if _instruments is not None:
        _instruments.requests.labels(_method(method), route or "unmatched", _NO_RESPONSE).inc()


def _method(method: str) -> str:
    """Clients can send any word."""
    return method if method in _METHODS else "other"


def batch_sent(inputs: int) -> None:
    if _instruments is not None:
        _instruments.batch_inputs.observe(inputs)


def connection_lent(pool: str, seconds: float) -> None:
    """After a wait of so many seconds."""
    if _instruments is not None:
        _instruments.pool_seconds.labels(_instruments.process, pool).observe(seconds)


def no_connection(pool: str) -> None:
    if _instruments is not None:
        _instruments.pool_timeouts.labels(_instruments.process, pool).inc()


def loop_blocked(kind: str, seconds: float) -> None:
    if _instruments is not None:
        _instruments.blocked_seconds.labels(_instruments.process, kind).observe(seconds)


def job_taken(waited_seconds: float) -> None:
    if _instruments is not None:
        _instruments.queue_seconds.observe(waited_seconds)


def run_ended(state: str) -> None:
    if _instruments is not None:
        _instruments.runs_ended.labels(state).inc()


def step_stored(model: str, tokens: Mapping[str, int], cost_usd: Decimal | None) -> None:
    """`tokens` by kind."""
    if _instruments is not None:
        label = _instruments.model_label(model)
        _instruments.steps.labels(label).inc()
        for kind, count in tokens.items():
            _instruments.tokens.labels(label, kind).inc(count)
        if cost_usd is not None:
            _instruments.cost.labels(label).inc(float(cost_usd))


def model_answered(model: str, seconds: float) -> None:
    if _instruments is not None:
        _instruments.model_seconds.labels(_instruments.model_label(model)).observe(seconds)


def model_failed(model: str) -> None:
    if _instruments is not None:
        _instruments.model_failures.labels(_instruments.failing_model_label(model)).inc()


def swept(deleted: Mapping[str, int] | None) -> None:
    """A round of retention, with the numbers that it deleted by kind. None: it failed."""
    if _instruments is not None:
        _instruments.sweeps.labels("failed" if deleted is None else "succeeded").inc()
        for kind, count in (deleted or {}).items():
            _instruments.deleted.labels(kind).inc(count)

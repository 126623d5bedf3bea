"""All counters and histograms that processes keep. Figures of the database are in server/metrics_store.py.

Imported only if a metrics port is served, after `PROMETHEUS_MULTIPROC_DIR` is set: the library reads it when it is
imported. docs/run/metrics.md describes each metric; a test compares the two.
"""

from prometheus_client import Counter, Gauge, Histogram

_REQUEST_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_POOL_SECONDS = (0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 3)
_QUEUE_SECONDS = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800)
_MODEL_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_BLOCKED_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
# Callers choose models by name. Each name makes new time series, so only the first ones get their own. Failures have as
# many more: with invented names, callers could use up the names of models that answer.
_MODELS = 50
OTHER = "other"
BLOCKED_KINDS = ("processor", "waiting", "interpreter lock")


class Instruments:
    def __init__(self, process: str) -> None:
        self.process = process
        self._models: set[str] = set()
        self._failing_models: set[str] = set()
        self.processes = _gauge("processes", "Running processes.", "process")
        self.processes.labels(process).set(1)

        self.requests = _counter("http_requests", "Requests, by response code.", "method", "route", "code")
        self.request_seconds = _histogram(
            "http_request_duration_seconds", "Time until a response starts.", _REQUEST_SECONDS, "method", "route"
        )
        self.batch_inputs = _histogram("input_batch_size", "Inputs stored by one database call.", _BATCH_SIZES)
        self.pool_seconds = _histogram(
            "pool_wait_seconds", "Time that work waited for a database connection.", _POOL_SECONDS, "process", "pool"
        )
        self.pool_timeouts = _counter("pool_timeouts", "Work that got no database connection.", "process", "pool")

        self.blocked_seconds = _histogram(
            "event_loop_blocked_seconds",
            "Time that one callback held up an event loop, if it was long.",
            _BLOCKED_SECONDS,
            "process",
            "kind",
        )

        self.queue_seconds = _histogram(
            "queue_wait_seconds", "Time that a run waited in the queue for a worker.", _QUEUE_SECONDS
        )
        self.runs_ended = _counter("runs_ended", "Runs that ended.", "state")
        self.steps = _counter("steps", "Stored answers of models.", "model")
        self.tokens = _counter("tokens", "Tokens of stored answers.", "model", "kind")
        self.cost = _counter("cost_usd", "Cost of stored answers whose price is known.", "model")
        self.model_seconds = _histogram(
            "model_request_duration_seconds", "Time of a request to a model, with retries.", _MODEL_SECONDS, "model"
        )
        self.model_failures = _counter("model_failures", "Requests to a model that failed after retries.", "model")

        self.sweeps = _counter("retention_sweeps", "Rounds of retention.", "outcome")
        self.deleted = _counter("retention_deleted", "Rows and files that retention deleted.", "kind")

        # From 0 on: Prometheus sees no increase from nothing to 1.
        for state in ("succeeded", "failed", "cancelled"):
            self.runs_ended.labels(state)
        for kind in BLOCKED_KINDS:
            self.blocked_seconds.labels(process, kind)
        for outcome in ("succeeded", "failed"):
            self.sweeps.labels(outcome)

    def model_label(self, model: str) -> str:
        """The label of a model that has answered."""
        return _bounded(model, self._models)

    def failing_model_label(self, model: str) -> str:
        return model if model in self._models else _bounded(model, self._failing_models)


def _bounded(model: str, known: set[str]) -> str:
    if model not in known and len(known) >= _MODELS:
        return OTHER
    known.add(model)
    return model


# Not in the library's global registry: figures are read from the files of all processes.
def _counter(name: str, description: str, *labels: str) -> Counter:
    return Counter(f"quarterdeck_{name}", description, labels, registry=None)


def _histogram(name: str, description: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
    return Histogram(f"quarterdeck_{name}", description, labels, buckets=buckets, registry=None)


def _gauge(name: str, description: str, *labels: str) -> Gauge:
    """Summed over the processes that run."""
    return Gauge(f"quarterdeck_{name}", description, labels, registry=None, multiprocess_mode="livesum")

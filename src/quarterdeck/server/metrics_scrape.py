"""What the metrics port answers: the files of all processes added up, and figures of the database.

Imports prometheus_client: import this module only to serve the port.
"""

import logging
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from wsgiref.simple_server import WSGIServer

import psutil
import psycopg
from msgspec.structs import replace
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.mmap_dict import MmapedDict
from prometheus_client.multiprocess import MultiProcessCollector

from quarterdeck import __version__
from quarterdeck.core.settings import Settings
from quarterdeck.runs.action_model import ActionKind
from quarterdeck.runs.model import RunState
from quarterdeck.server.metrics_store import Figures, MetricsConnection, read_counts, read_figures

logger = logging.getLogger(__name__)

# Prometheus waits for ten seconds by default. Without a database, the other figures must arrive in time.
_CONNECT_SECONDS = 3
_ACTIVE_STATES = (RunState.PENDING, RunState.QUEUED, RunState.RUNNING, RunState.WAITING)


def serve_scrapes(settings: Settings, database_url: str, folder: Path) -> WSGIServer:
    """Serves in a thread. Raises OSError if the address cannot be used."""
    assert settings.metrics.port is not None
    registry = CollectorRegistry()
    registry.register(Scrape(ProcessFiles(folder), DatabaseFigures(settings, database_url)))
    server, _ = start_http_server(settings.metrics.port, settings.metrics.host, registry)
    return server


class Scrape:
    """One at a time: it holds one database connection, and merges files."""

    def __init__(self, files: "ProcessFiles", database: "DatabaseFigures") -> None:
        self._files = files
        self._database = database
        self._lock = threading.Lock()
        # The API forks its processes. In a new process, locks that the thread of a scrape holds would stay locked.
        os.register_at_fork(
            before=self._lock.acquire, after_in_parent=self._lock.release, after_in_child=self._lock.release
        )

    def collect(self) -> Iterable[Metric]:
        with self._lock:
            return [*self._files.collect(), *self._database.collect()]


class ProcessFiles:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterable[Metric]:
        for file in self._folder.glob("*.db"):
            owner = file.stem.rpartition("_")[2]
            if owner.isdecimal() and not psutil.pid_exists(int(owner)):
                self._add_to_ended(file)
        # A file is empty for a moment after it was created. The library cannot read it then.
        files = [str(file) for file in self._folder.glob("*.db") if file.stat().st_size > 0]
        merged: Iterable[Metric] = MultiProcessCollector.merge(files)
        return merged

    def _add_to_ended(self, file: Path) -> None:
        """Keeps the counts of processes that have ended in one file of each type. Otherwise a process that crashes
        again and again would fill the disk."""
        metric_type = file.name.partition("_")[0]
        # All gauges are about processes that run.
        if metric_type != "gauge" and file.stat().st_size > 0:
            ended = MmapedDict(str(self._folder / f"{metric_type}_ended.db"))
            for key, value, _, _ in MmapedDict.read_all_values_from_file(str(file)):
                ended.write_value(key, ended.read_value(key)[0] + value, 0.0)
            ended.close()
        file.unlink()


class DatabaseFigures:
    """Every metrics port reports them: queries use `max`, and one port that answers is enough."""

    def __init__(self, settings: Settings, url: str) -> None:
        self._settings = settings
        self._url = url
        self._was_read = True

    def collect(self) -> Iterator[Metric]:
        yield _gauge("build_info", "Version of the process with the port.", {__version__: 1}, "version")
        figures = self._read()
        yield _gauge("database_up", "Whether the figures of the database could be read.", figures is not None)
        if figures is not None:
            yield from database_metrics(figures)

    def _read(self) -> Figures | None:
        try:
            with psycopg.connect(self._url, connect_timeout=_CONNECT_SECONDS) as connection:
                figures = read_all(connection, self._settings.database.role, self._settings.worker.lease_seconds)
        except psycopg.Error as fault:
            if self._was_read:
                logger.warning("the figures of the database cannot be read: %s", fault)
            self._was_read = False
            return None
        self._was_read = True
        return figures


def read_all(connection: MetricsConnection, role: str, lease_seconds: float) -> Figures:
    """Without counts if there are too many rows to count them in time."""
    figures = read_figures(connection, role, lease_seconds)
    try:
        # A savepoint: the transaction goes on after a timeout.
        with connection.transaction():
            return replace(figures, counts=read_counts(connection))
    except psycopg.errors.QueryCanceled:
        return figures


def database_metrics(figures: Figures) -> Iterator[Metric]:
    if figures.counts is not None:
        runs: dict[str, float] = {state: figures.counts.runs.get(state, 0) for state in _ACTIVE_STATES}
        yield _gauge("runs", "Runs that have not ended.", runs, "state")
        yield _gauge("queue_jobs", "Runs that wait for a worker.", figures.counts.queued_jobs)
        actions: dict[str, float] = {kind: figures.counts.open_actions.get(kind, 0) for kind in ActionKind}
        yield _gauge("actions_open", "Actions that wait for an answer.", actions, "kind")
    yield _gauge("queue_oldest_seconds", "How long the first run in the queue waits.", figures.queue_oldest_seconds)
    yield _gauge("workers", "Workers with a recent heartbeat.", figures.workers)
    yield _gauge("database_connections", "Connections to the PostgreSQL server.", figures.connections)
    yield _gauge("database_max_connections", "max_connections of the PostgreSQL server.", figures.max_connections)


def _gauge(name: str, description: str, value: float | Mapping[str, float], label: str | None = None) -> Metric:
    """`value`: by label, if there is one."""
    family = GaugeMetricFamily(f"quarterdeck_{name}", description, labels=[label] if label else None)
    values = value if isinstance(value, Mapping) else {"": value}
    for label_value, one in values.items():
        family.add_metric([label_value] if label else [], one)
    return family

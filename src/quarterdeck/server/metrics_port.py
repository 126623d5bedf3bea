"""The metrics port of a `qd serve`, `qd api` or `qd worker`: one for all its processes.

Processes record into files of a folder (`core/metrics.py`). The process with the port adds the files up when it is
asked (`metrics_scrape.py`).
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quarterdeck.core import metrics
from quarterdeck.core.settings import Settings
from quarterdeck.server.address import AddressError, address_text, free_address


def check_metrics_address(settings: Settings) -> None:
    """Raises AddressError if the port cannot be used."""
    if settings.metrics.port is not None:
        free_address(settings.metrics.host, settings.metrics.port)


@contextmanager
def metrics_port(settings: Settings, database_url: str) -> Iterator[None]:
    """Serves the figures of this process and of those that it starts inside the block. Does nothing without a port.
    Raises AddressError."""
    host, port = settings.metrics.host, settings.metrics.port
    if port is None:
        yield
        return
    check_metrics_address(settings)
    folder = Path(tempfile.mkdtemp(prefix="quarterdeck-metrics-"))
    try:
        metrics.use_folder(folder)
        # Imported here: the library reads its variable when it is imported, and takes a while.
        from quarterdeck.server.metrics_scrape import serve_scrapes

        try:
            server = serve_scrapes(settings, database_url, folder)
        except OSError as fault:
            raise AddressError(f"cannot listen on {address_text(host, port)}: {fault.strerror or fault}") from fault
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)

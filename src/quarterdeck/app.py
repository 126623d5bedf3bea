"""Composition root: settings become a database, a bundle store and an ASGI app. Nothing runs on import."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

from starlette.routing import Router as Lifespan
from starlette.types import ASGIApp

from quarterdeck.access.callers import Callers
from quarterdeck.access.last_used import LastUsed
from quarterdeck.db.database import Database
from quarterdeck.events.feed import Feed
from quarterdeck.events.hints import Hints
from quarterdeck.events.shared_pages import SharedPages
from quarterdeck.http.console import Console
from quarterdeck.http.docs_page import serve_docs
from quarterdeck.http.edge import Edge
from quarterdeck.http.endpoint import Endpoint, operation_endpoint
from quarterdeck.http.health import healthz, readyz
from quarterdeck.http.openapi import openapi_document, serve_document
from quarterdeck.http.operation import Operation
from quarterdeck.http.router import Router
from quarterdeck.http.routes import OPERATIONS
from quarterdeck.logs import configure_logs, log
from quarterdeck.parts import Parts
from quarterdeck.rate_limits.allowance import RateLimits
from quarterdeck.runs.known_callers import KnownCallers
from quarterdeck.runs.submissions import Submissions
from quarterdeck.settings import Settings
from quarterdeck.skills.bundle_store import open_bundle_store
from quarterdeck.skills.pushes import Pushes
from quarterdeck.skills.uploads import open_uploads
from quarterdeck.stopping import told_of_stop
from quarterdeck.sweep import sweep
from quarterdeck.webhooks.sealing import Sealer


def load_app(settings: Settings) -> ASGIApp:
    configure_logs(settings.log.level)
    parts = build_parts(settings)
    lifespan = Lifespan(lifespan=_lifespan(parts))
    return Edge(Router(_endpoints(parts)), lifespan, settings.http)


def build_parts(settings: Settings) -> Parts:
    url = settings.database.url
    assert url is not None, "an API process is told which database to use"
    database = Database(url, settings.database)
    hints = Hints(database)
    return Parts(
        settings=settings,
        database=database,
        callers=Callers(database),
        last_used=LastUsed(),
        rate_limits=RateLimits(settings.limit, settings.server.processes),
        submissions=Submissions(url, settings.database, settings.submit, hints.add),
        known_callers=KnownCallers(settings.submit.known_callers),
        bundles=open_bundle_store(settings.bundle.store_url, settings.data_dir),
        uploads=open_uploads(settings.bundle, settings.data_dir),
        pushes=Pushes(database),
        hints=hints,
        feed=Feed(url, settings.database, settings.stream),
        shared_pages=SharedPages(database),
        stopping=asyncio.Event(),
        sealer=Sealer(settings.webhook, settings.data_dir),
    )


def _endpoints(parts: Parts) -> dict[str, Endpoint]:
    paths: dict[str, list[Operation]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, []).append(operation)
    document = openapi_document(OPERATIONS)
    console = Console()
    return {
        **{path: operation_endpoint(together, parts) for path, together in paths.items()},
        "/": Endpoint({"GET": console.page()}),
        "/assets/{hash}/{name:path}": Endpoint({"GET": console.asset()}),
        "/openapi.json": Endpoint({"GET": serve_document(document)}),
        "/docs": Endpoint({"GET": serve_docs(document)}),
        "/healthz": Endpoint({"GET": healthz}),
        "/readyz": Endpoint({"GET": readyz(parts.database)}),
    }


def _lifespan(parts: Parts) -> Callable[[object], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(_: object) -> AsyncIterator[None]:
        await parts.database.open()
        await parts.submissions.open()
        await parts.feed.open()
        loops = [
            asyncio.create_task(_every(parts.settings.key.last_used_flush_seconds, lambda: _flush(parts))),
            asyncio.create_task(_every(parts.settings.receipt.sweep_interval_seconds, lambda: sweep(parts))),
        ]
        with told_of_stop(lambda: _stop(parts)):
            yield
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)
        with suppress(Exception):
            await _flush(parts)
        await parts.feed.close()
        parts.uploads.close()
        await parts.submissions.close()
        await parts.hints.close()
        await parts.rate_limits.close()
        await parts.database.close()

    return lifespan


def _stop(parts: Parts) -> None:
    parts.stopping.set()
    parts.feed.stop()


async def _flush(parts: Parts) -> None:
    await parts.last_used.flush(parts.database)


async def _every(seconds: float, work: Callable[[], Awaitable[object]]) -> None:
    while True:
        await asyncio.sleep(seconds)
        try:
            await work()
        except Exception as fault:
            log.warning("background work failed and will be tried again", exc_info=fault)

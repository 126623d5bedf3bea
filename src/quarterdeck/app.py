"""Composition root of an API process: settings become services and an ASGI app. Nothing runs on import."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress

from msgspec.structs import asdict
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from quarterdeck.api.endpoint import Endpoint, Executor, Respond
from quarterdeck.api.health import HealthListener, healthz, on_shutdown_signal, readyz
from quarterdeck.api.mcp_endpoint.endpoint import McpEndpoint
from quarterdeck.api.openapi import openapi_document, serve_document
from quarterdeck.api.routes import OPERATIONS
from quarterdeck.api.static_pages import api_reference, console
from quarterdeck.auth.access import Access
from quarterdeck.auth.last_used import LastUsed
from quarterdeck.auth.rate_limiter import RateLimiter
from quarterdeck.blobs.blob_store import BlobStore, open_blob_store
from quarterdeck.blobs.service import spool_folder
from quarterdeck.changes.perform import Changes
from quarterdeck.connections.credentials.authorizations import OAuthTokens
from quarterdeck.connections.servers.service import McpChecks, McpOffer
from quarterdeck.core import errors, metrics, tracing
from quarterdeck.core.logging import configure_logs, log
from quarterdeck.core.loop_watchdog import watched_loop
from quarterdeck.core.operation import Operation
from quarterdeck.core.retention import RetentionDays
from quarterdeck.core.secret_encryption import SecretCipher
from quarterdeck.core.settings import CredentialSettings, McpSettings, Settings
from quarterdeck.core.trace_export import start_tracing, stop_tracing
from quarterdeck.db.database import Database
from quarterdeck.events.log import Notifier
from quarterdeck.events.streams import EventHub, PageLoader, StreamSlots
from quarterdeck.files.service import FileUploads
from quarterdeck.http.downloads import Downloads
from quarterdeck.http.middleware import Middleware
from quarterdeck.http.request_spans import RequestSpans
from quarterdeck.models.catalog import ModelCatalog
from quarterdeck.models.output_schema import SchemaChecks
from quarterdeck.openid.issuers import Issuers
from quarterdeck.openid.providers import Providers
from quarterdeck.people.http import ProviderCallback
from quarterdeck.people.passwords import Passwords, Tries
from quarterdeck.people.provider_refresh import ProviderRefresher
from quarterdeck.people.provider_sign_in import ProviderSignIns
from quarterdeck.people.sign_in import SignIns
from quarterdeck.retention import delete_expired
from quarterdeck.runs.creation import AttachmentRules
from quarterdeck.runs.input_batcher import InputBatcher
from quarterdeck.sandbox.adapter import Sandbox
from quarterdeck.sandbox.choice import SandboxOffer, find_sandbox, why_no_sandbox
from quarterdeck.sandbox.model import SandboxUnavailable
from quarterdeck.session_files.archive import Archives
from quarterdeck.skills.uploads import Uploads


def load_app(settings: Settings) -> ASGIApp:
    configure_logs(settings.log.level)
    metrics.start("api")
    start_tracing("quarterdeck-api", os.environ)
    services = Services(settings)
    router = Router(services.routes(), redirect_slashes=False, default=_not_found, lifespan=services.lifespan())
    logs_requests = not sys.stderr.isatty() if settings.log.requests is None else settings.log.requests
    app: ASGIApp = Middleware(router, settings.http, logs_successes=logs_requests)
    if tracing.is_on():
        app = RequestSpans(app)
    services.mcp_endpoint.app = app
    return app


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    raise errors.not_found("path")


class Services:
    """The long-lived objects of one process. Operations ask for those they need by type: see `core/operation.py`."""

    def __init__(self, settings: Settings) -> None:
        url = settings.database.url
        assert url is not None, "an API process is told which database to use"
        self.settings = settings
        self.database = Database(url, settings.database)
        self.last_used = LastUsed()
        self.access = Access(self.database, self.last_used)
        self.rate_limiter = RateLimiter(settings.limit, settings.server.processes)
        self.notifier = Notifier(self.database)
        self.inputs = InputBatcher(url, settings.database, settings.submit, self.notifier.add)
        self.hub = EventHub(settings.database.session_url or url, self.database, settings.database, settings.stream)
        self.blobs = open_blob_store(settings.blob, settings.data_dir)
        self.uploads = Uploads(settings.bundle, spool_folder(settings.data_dir))
        self.archives = Archives(self.blobs, settings.bundle.scans)
        self.sandbox = SandboxOffer(settings.sandbox)
        tries = Tries(self.database, settings.sign_in)
        self.sign_ins = SignIns(self.database, Passwords(), tries, settings.key, settings.sign_in)
        self.issuers = Issuers(settings.oidc)
        self.cipher = SecretCipher(settings.encryption, settings.data_dir)
        self.providers = Providers(settings.oidc)
        self.provider_sign_ins = ProviderSignIns(
            self.database, self.providers, self.cipher, self.sign_ins, settings.oidc
        )
        self.provider_refresher = ProviderRefresher(self.database, self.providers, self.cipher, settings.oidc)
        self.oauth_tokens = OAuthTokens(settings.credential, settings.mcp.allowed_addresses)
        self.mcp_checks = McpChecks(settings.mcp)
        self.mcp_offer = McpOffer(settings.mcp)
        self.shutdown = asyncio.Event()
        self.mcp_endpoint = McpEndpoint(settings, self.shutdown)

    def routes(self) -> list[Route]:
        executor = Executor(self.settings.http, self.rate_limiter, self._provided())
        paths: dict[str, list[Operation]] = {}
        for operation in OPERATIONS:
            paths.setdefault(operation.path, []).append(operation)
        callback = ProviderCallback(self.provider_sign_ins, self.settings.http.trusted_proxies)
        pages = {"/": console(), "/docs": api_reference()}
        endpoints = {
            **{path: executor.endpoint(operations) for path, operations in paths.items()},
            **{path: Endpoint({"GET": check}) for path, check in self._health_checks().items()},
            "/signed-in/{provider}": Endpoint({"GET": callback.respond}),
            "/mcp": Endpoint({"POST": self.mcp_endpoint.respond}, self.mcp_endpoint.check),
            **{path: Endpoint({"GET": page.page}) for path, page in pages.items()},
            **{
                f"{path.rstrip('/')}/assets/{{hash}}/{{name:path}}": Endpoint({"GET": page.asset})
                for path, page in pages.items()
            },
            "/openapi.json": Endpoint({"GET": serve_document(openapi_document(OPERATIONS))}),
        }
        return [Route(path, endpoint) for path, endpoint in endpoints.items()]

    def _health_checks(self) -> dict[str, Respond]:
        return {"/healthz": healthz, "/readyz": readyz(self.database)}

    def _health_listener(self) -> AbstractAsyncContextManager[None]:
        server = self.settings.server
        if server.health_port is None:
            return nullcontext()
        return HealthListener(self._health_checks()).listening(server.host, server.health_port)

    def _provided(self) -> dict[type, object]:
        settings = self.settings
        return {
            Access: self.access,
            Changes: Changes(self.database, self.access),
            Database: self.database,
            LastUsed: self.last_used,
            InputBatcher: self.inputs,
            EventHub: self.hub,
            PageLoader: PageLoader(self.database),
            StreamSlots: StreamSlots(settings.stream, settings.http.connections),
            BlobStore: self.blobs,
            Uploads: self.uploads,
            SandboxOffer: self.sandbox,
            Archives: self.archives,
            FileUploads: FileUploads(settings.file, settings.bundle, spool_folder(settings.data_dir)),
            Downloads: Downloads(settings.stream.send_seconds, self.shutdown),
            ModelCatalog: ModelCatalog(settings.model),
            SchemaChecks: SchemaChecks(),
            AttachmentRules: AttachmentRules(settings.file, settings.sandbox, settings.model),
            SignIns: self.sign_ins,
            Issuers: self.issuers,
            ProviderSignIns: self.provider_sign_ins,
            SecretCipher: self.cipher,
            OAuthTokens: self.oauth_tokens,
            McpChecks: self.mcp_checks,
            McpOffer: self.mcp_offer,
            **{
                type(section): section for section in (settings.key, settings.token, settings.sign_in, settings.webhook)
            },
            CredentialSettings: settings.credential,
            McpSettings: settings.mcp,
            RetentionDays: settings.default_retention,
            **{
                type(section): section
                for section in (settings.bundle, settings.file, settings.stream, settings.fork, settings.submit)
            },
        }

    def lifespan(self) -> Callable[[object], AbstractAsyncContextManager[None]]:
        settings = self.settings

        @asynccontextmanager
        async def lifespan(_: object) -> AsyncIterator[None]:
            self.sandbox.missing = await why_no_sandbox(settings.sandbox, settings.data_dir)
            self.mcp_checks.open(await self._mcp_sandbox())
            await self.database.open()
            await self.inputs.open()
            await self.hub.open()
            sweep_seconds = settings.receipt.sweep_interval_seconds
            loops = [
                asyncio.create_task(_every(settings.key.last_used_flush_seconds, self._flush)),
                asyncio.create_task(_every(sweep_seconds, self._delete_expired)),
                asyncio.create_task(_every(settings.oidc.refresh_seconds / 10, self.provider_refresher.refresh)),
            ]
            async with self._health_listener():
                with on_shutdown_signal(self._stop), watched_loop(settings.log.blocked_loop_seconds):
                    yield
            for loop in loops:
                loop.cancel()
            await asyncio.gather(*loops, return_exceptions=True)
            with suppress(Exception):
                await self._flush()
            await self.hub.close()
            self.uploads.close()
            self.archives.close()
            await self.mcp_checks.close()
            self.oauth_tokens.close()
            self.issuers.close()
            self.providers.close()
            await self.inputs.close()
            await self.notifier.close()
            await self.rate_limiter.close()
            await self.database.close()
            await asyncio.to_thread(stop_tracing, settings.server.shutdown_seconds / 4)

        return lifespan

    async def _mcp_sandbox(self) -> Sandbox | None:
        """For checks of stdio servers: they are started in a sandbox, here as in workers."""
        settings = self.settings
        if settings.mcp.commands_file is None:
            return None
        try:
            return await find_sandbox(settings.sandbox, settings.data_dir)
        except SandboxUnavailable as fault:
            log.warning("stdio MCP servers cannot be checked by this process: %s", fault)
            return None

    def _stop(self) -> None:
        self.shutdown.set()
        self.hub.stop()

    async def _flush(self) -> None:
        await self.last_used.flush(self.database)

    async def _delete_expired(self) -> None:
        try:
            deleted = await delete_expired(self.database, self.blobs, self.settings)
        except Exception:
            metrics.swept(None)
            raise
        metrics.swept(asdict(deleted))


async def _every(seconds: float, work: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(seconds)
        try:
            await work()
        except Exception as fault:
            log.warning("background work failed and will be tried again", exc_info=fault)

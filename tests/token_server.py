"""An OAuth token endpoint for client credentials, written from RFC 6749: a real HTTP server."""

import asyncio
import base64
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import parse_qsl, unquote_plus

import msgspec

from quarterdeck.core.setting_types import AddressExceptions
from tests.receivers import Received, read_request


class TokenServer:
    def __init__(self, client_id: str, client_secret: str) -> None:
        self.client = (client_id, client_secret)
        # How clients may name themselves.
        self.takes_header = True
        self.takes_form = True
        self.expires_in: object = 3600
        self.received: list[Received] = []
        self.issued: list[str] = []
        # Responses wait for it.
        self.gate = asyncio.Event()
        self.gate.set()
        # Instead of the usual response: status line, headers, body.
        self.raw: bytes | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/token"

    @property
    def exceptions(self) -> AddressExceptions:
        return AddressExceptions.parse(f"127.0.0.1:{self.port}")

    @property
    def forms(self) -> list[dict[str, str]]:
        return [dict(parse_qsl(received.body.decode(), strict_parsing=True)) for received in self.received]

    def answer(self, received: Received) -> tuple[int, dict[str, object]]:
        form = dict(parse_qsl(received.body.decode(), strict_parsing=True))
        scheme, _, pair = received.headers.get("authorization", "").partition(" ")
        named = None
        if scheme == "Basic" and self.takes_header:
            client_id, _, secret = base64.b64decode(pair, validate=True).decode().partition(":")
            named = (unquote_plus(client_id), unquote_plus(secret))
        elif "client_id" in form and self.takes_form:
            named = (form["client_id"], form["client_secret"])
        if named != self.client:
            return 401, {"error": "invalid_client", "error_description": f"{form} {pair}"}
        if form.get("grant_type") != "client_credentials":
            return 400, {"error": "unsupported_grant_type"}
        self.issued.append(f"issued-{secrets.token_urlsafe(24)}")
        return 200, {"access_token": self.issued[-1], "token_type": "Bearer", "expires_in": self.expires_in}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                received = await read_request(reader)
                self.received.append(received)
                await self.gate.wait()
                if self.raw is not None:
                    writer.write(self.raw)
                else:
                    status, content = self.answer(received)
                    body = msgspec.json.encode(content)
                    head = f"HTTP/1.1 {status} Status\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
                    writer.write(head.encode() + b"\r\n\r\n" + body)
                await writer.drain()
        finally:
            writer.close()


@asynccontextmanager
async def token_server(client_id: str, client_secret: str) -> AsyncIterator[TokenServer]:
    server = TokenServer(client_id, client_secret)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        server.gate.set()
        listening.close()
        await listening.wait_closed()

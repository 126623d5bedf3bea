"""A process to kill: `serve` runs the supervisor, `api` is the API that it starts, around an app of a few lines."""

import asyncio
import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg

from quarterdeck.core.settings import read_settings
from quarterdeck.server.api_server import serve_api
from quarterdeck.server.supervisor import supervise

Message = dict[str, Any]
# Settings that are lists.
LISTS = {
    "QUARTERDECK_MODEL_NAMES": "demo,openai:gpt-5",
    "QUARTERDECK_HTTP_CORS_ORIGINS": "https://a.example.com,https://b.example.com",
    "QUARTERDECK_HTTP_TRUSTED_PROXIES": "10.0.0.0/8,192.0.2.7,fd00::/8",
    "QUARTERDECK_WEBHOOK_RETRY_SECONDS": "5,300",
}
PAUSES = {"/slow": 1, "/hang": 600}


async def app(
    scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    if scope["type"] == "lifespan":
        while (message := await receive())["type"] != "lifespan.shutdown":
            await send({"type": f"{message['type']}.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    told = {
        "/url": os.environ["QUARTERDECK_DATABASE_URL"],
        "/owner_url": os.environ.get("QUARTERDECK_DATABASE_OWNER_URL", ""),
        "/lists": " ".join(os.environ.get(name, "") for name in LISTS),
    }
    body = told.get(scope["path"], str(os.getpid()))
    await send({"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]})
    if scope["path"] in PAUSES:
        # So that the client knows that its request is under way.
        await send({"type": "http.response.body", "body": b"begun ", "more_body": True})
        await asyncio.sleep(PAUSES[scope["path"]])
    await send({"type": "http.response.body", "body": body.encode()})


def load() -> Any:
    if "BROKEN" in os.environ:
        raise RuntimeError("this app cannot be loaded")
    return app


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def before_api(url: str) -> str:
    with psycopg.connect(url) as connection:
        connection.execute("SELECT 1")
    say("DATABASE", url)
    if "REFUSE" in os.environ:
        raise RuntimeError("refused before the API")
    time.sleep(float(os.environ.get("LINGER_SECONDS", "0")))
    return os.environ.get("APP_URL", url)


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    settings = read_settings(os.environ)
    if sys.argv[1] == "api":
        return serve_api(settings, settings.server.host, settings.server.port, load)
    return supervise(
        settings,
        before_api,
        announce=lambda address: say("ADDRESS", address),
        api_command=[sys.executable, "-m", "tests.fault.served", "api"],
    )


if __name__ == "__main__":
    sys.exit(main())

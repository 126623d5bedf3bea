"""One request and what became of it: counted, timed, and looked at for what every answer must be."""

import asyncio
import random
import time

import httpx

from quarterdeck.client.retrying import Outcome, may_repeat, retry_after_seconds
from quarterdeck.core.errors import ErrorCode
from tests.harness.fleet import Api, Fleet
from tests.harness.history import Answer, History

# So long a client insists.
PATIENCE_SECONDS = 60.0
_CODES = {code.value for code in ErrorCode}
# Where a full disk is met.
_STORES = "/versions"


class Asking:
    def __init__(self, fleet: Fleet, history: History) -> None:
        self.http = httpx.AsyncClient(timeout=20.0, limits=httpx.Limits(max_keepalive_connections=None))
        self._fleet = fleet
        self._history = history

    def request(
        self, api: Api, method: str, path: str, key: str, body: object = None, idempotency_key: str | None = None
    ) -> httpx.Request:
        headers = {"Authorization": f"Bearer {key}", "Service-Workspace": str(self._fleet.workspace_id)}
        if idempotency_key is not None:
            headers["Idempotency-Key"] = idempotency_key
        if isinstance(body, bytes):
            headers["Content-Type"] = "application/gzip"
            return self.http.build_request(method, api.url + path, headers=headers, content=body)
        return self.http.build_request(method, api.url + path, headers=headers, json=body)

    async def once(self, request: httpx.Request) -> tuple[Answer | None, Outcome]:
        begun = time.monotonic()
        try:
            response = await self.http.send(request)
        except httpx.TransportError as fault:
            sent = not isinstance(fault, httpx.ConnectError | httpx.ConnectTimeout)
            self._history.count(type(fault).__name__, time.monotonic() - begun)
            return None, Outcome(sent=sent)
        self._history.count(str(response.status_code), time.monotonic() - begun)
        self.check(response)
        retry_after = retry_after_seconds(response.headers.get("retry-after"), response.headers.get("date"))
        replayed = response.headers.get("idempotency-replayed") == "true"
        answer = Answer(response.status_code, response.content, replayed)
        return answer, Outcome(response.status_code, retry_after=retry_after)

    async def until_answered(
        self, chance: random.Random, method: str, path: str, body: object = None, idempotency_key: str | None = None
    ) -> Answer | None:
        """By the operator's key. None when nobody can say what became of it."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            api = chance.choice(self._fleet.apis)
            answer, outcome = await self.once(self.request(api, method, path, self._fleet.key, body, idempotency_key))
            keyed = idempotency_key is not None
            if not may_repeat(method, keyed, outcome):
                return answer
            await asyncio.sleep(chance.uniform(0.02, 0.3))
        if idempotency_key is not None or method == "GET":
            self._history.violated(f"{method} {path}: no answer within {PATIENCE_SECONDS:g} s")
        return None

    def check(self, response: httpx.Response) -> None:
        """An error is the envelope, and 500 only where a disk can be full."""
        if response.status_code < 400:
            return
        try:
            code = response.json()["error"]["code"]
        except (ValueError, KeyError, TypeError):
            code = None
        if code not in _CODES:
            self._history.violated(f"no envelope: {response.status_code} {response.content[:200]!r}")
        if response.status_code == 500 and not response.url.path.endswith(_STORES):
            self._history.violated(f"{response.url.path}: 500")

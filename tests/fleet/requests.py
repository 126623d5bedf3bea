"""HTTP requests to the fleet: every attempt is recorded, and every error answer is checked for the envelope."""

import asyncio
import random
import time

import httpx

from quarterdeck.client.calls import AttemptResult, may_repeat, retry_after_seconds
from quarterdeck.core.errors import ErrorCode
from tests.fleet.deployment import Deployment
from tests.fleet.history import Answer, Attempt, History
from tests.fleet.process import ApiProcess

# A client retries for this long.
RETRY_SECONDS = 60.0
_CODES = {code.value for code in ErrorCode}
# Only pushes write to the blob store, so only they can meet a full disk.
_PUSH_PATH_END = "/versions"


class Requests:
    def __init__(self, fleet: Deployment, history: History) -> None:
        self.http = httpx.AsyncClient(timeout=20.0, limits=httpx.Limits(max_keepalive_connections=None))
        self._fleet = fleet
        self._history = history

    def build(
        self, api: ApiProcess, method: str, path: str, key: str, body: object = None, idempotency_key: str | None = None
    ) -> httpx.Request:
        headers = {"Authorization": f"Bearer {key}", "Service-Workspace": str(self._fleet.workspace_id)}
        if idempotency_key is not None:
            headers["Idempotency-Key"] = idempotency_key
        if isinstance(body, bytes):
            headers["Content-Type"] = "application/gzip"
            return self.http.build_request(method, api.url + path, headers=headers, content=body)
        return self.http.build_request(method, api.url + path, headers=headers, json=body)

    async def send(self, request: httpx.Request) -> tuple[Answer | None, AttemptResult]:
        """One attempt."""
        api, began = f"{request.url.host}:{request.url.port}", time.monotonic()
        try:
            response = await self.http.send(request)
        except httpx.TransportError as fault:
            sent = not isinstance(fault, httpx.ConnectError | httpx.ConnectTimeout)
            attempt = Attempt(api, type(fault).__name__, began, time.monotonic(), is_proper=False)
            self._history.attempts.append(attempt)
            return None, AttemptResult(sent=sent)
        ended = time.monotonic()
        is_proper = self.check(response)
        self._history.attempts.append(Attempt(api, str(response.status_code), began, ended, is_proper))
        retry_after = retry_after_seconds(response.headers.get("retry-after"), response.headers.get("date"))
        replayed = response.headers.get("idempotency-replayed") == "true"
        answer = Answer(response.status_code, response.content, replayed)
        return answer, AttemptResult(response.status_code, retry_after=retry_after)

    async def send_until_answered(
        self, rng: random.Random, method: str, path: str, body: object = None, idempotency_key: str | None = None
    ) -> Answer | None:
        """With the fleet's own key. None if the outcome stays unknown."""
        deadline = time.monotonic() + RETRY_SECONDS
        keyed = idempotency_key is not None
        while time.monotonic() < deadline:
            api = rng.choice(self._fleet.apis)
            answer, outcome = await self.send(self.build(api, method, path, self._fleet.key, body, idempotency_key))
            if not may_repeat(method, keyed, outcome):
                return answer
            await asyncio.sleep(rng.uniform(0.02, 0.3))
        if keyed or method == "GET":
            self._history.add_violation(f"{method} {path}: no answer within {RETRY_SECONDS:g} s")
        return None

    def check(self, response: httpx.Response) -> bool:
        """Whether the answer is a success or the error envelope. 500 is allowed only where a disk can be full."""
        if response.status_code < 400:
            return True
        try:
            code = response.json()["error"]["code"]
        except (ValueError, KeyError, TypeError):
            code = None
        if code not in _CODES:
            self._history.add_violation(f"no envelope: {response.status_code} {response.content[:200]!r}")
        if response.status_code == 500 and not response.url.path.endswith(_PUSH_PATH_END):
            self._history.add_violation(f"{response.url.path}: 500")
        return code in _CODES

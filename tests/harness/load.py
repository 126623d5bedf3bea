"""Clients. Each follows the retry rules of our own client, and everything it is told goes into the history."""

import asyncio
import hashlib
import json
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import httpx
from msgspec import Struct

from quarterdeck.client.retry import may_repeat
from tests.harness.asking import PATIENCE_SECONDS, Asking
from tests.harness.fleet import Api, Fleet
from tests.harness.history import Answer, History, Intent, Kind
from tests.harness.invariants import Entry, check_answers
from tests.world import bundle

CLIENTS = 8
SHORT_SESSIONS, LONG_SESSIONS = 4, 2
SKILLS = 2
# How long a session is written to.
LIFE_SECONDS = (6.0, 14.0)
# A revoked key is refused everywhere after this.
REVOCATION_SECONDS = 1.0
_ORDERS = ("", "", "", "", "\ndemo: steps 2", "\ndemo: steps 3\ndemo: slow 0.2", "\ndemo: slow 1", "\ndemo: fail")
# Of a session whose run is under way whatever happens.
_LONG_ORDERS = ("\ndemo: steps 9\ndemo: slow 0.8",)


class Hot(Struct):
    """A session that is written to."""

    id: str
    token: str
    until: float
    orders: tuple[str, ...]
    intents: list[Intent]
    # Ids and types that its reader got, in their order.
    seen: list[tuple[int, str]]
    reader: "asyncio.Task[None] | None" = None

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self.until

    @property
    def retired(self) -> bool:
        return self.is_over and all(intent.over for intent in self.intents)

    def has_all(self, entries: Sequence[Entry]) -> bool:
        """Whether its reader is at the end of the log."""
        return not entries or bool(self.seen and self.seen[-1][0] == entries[-1].id)


class Load:
    def __init__(self, fleet: Fleet, history: History, seed: int) -> None:
        self.hot: list[Hot] = []
        # No longer written to, and not yet at rest.
        self.cooling: list[Hot] = []
        self.rested: list[Hot] = []
        self.pushed: dict[str, dict[str, Intent]] = {}
        self.stopping = False
        self._fleet = fleet
        self._history = history
        self._seed = seed
        self._asking = Asking(fleet, history)
        self._repeatable: list[tuple[Intent, Callable[[], httpx.Request]]] = []

    async def run(self) -> None:
        """Until `stopping`, and until whatever is under way is settled."""
        chance = random.Random(f"{self._seed} setup")
        for number in range(SKILLS):
            made = await self._made(chance, "/v1/skills", {"name": f"skill {number}"})
            self.pushed[made["id"]] = {}
        for orders in [_ORDERS] * SHORT_SESSIONS + [_LONG_ORDERS] * LONG_SESSIONS:
            self.hot.append(await self._new_session(chance, orders))
        tasks = [self._client(random.Random(f"{self._seed} client {number}")) for number in range(CLIENTS)]
        await asyncio.gather(*tasks, self._renew(chance))

    async def close(self) -> None:
        readers = [hot.reader for hot in [*self.hot, *self.cooling] if hot.reader is not None]
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        await self._asking.http.aclose()

    async def _renew(self, chance: random.Random) -> None:
        while not self.stopping:
            for place, hot in enumerate(self.hot):
                if hot.is_over:
                    fresh = await self._new_session(chance, hot.orders)
                    self.cooling.append(hot)
                    self.hot[place] = fresh
            await asyncio.sleep(0.2)
        now = time.monotonic()
        for hot in self.hot:
            hot.until = min(hot.until, now)
        self.cooling += self.hot
        self.hot = []

    async def _client(self, chance: random.Random) -> None:
        actions: list[tuple[int, Callable[[random.Random], Awaitable[None]]]] = [
            (60, self._submit),
            (8, self._repeat),
            (2, self._reuse),
            (8, self._push),
            (5, self._key),
            (3, self._cancel),
            (6, self._read),
        ]
        weights = [weight for weight, _ in actions]
        while not self.stopping:
            _, action = chance.choices(actions, weights)[0]
            await action(chance)
            await asyncio.sleep(chance.uniform(0.0, 0.03))

    # --- what clients do ---

    async def _submit(self, chance: random.Random) -> None:
        await self._submit_to(chance.choice(self.hot), chance)

    async def _submit_to(self, hot: Hot, chance: random.Random) -> None:
        intent = self._history.intent(
            Kind.SUBMIT, about=hot.id, by_token=chance.random() < 0.3, idempotency_key=_maybe_key(chance, 0.8)
        )
        hot.intents.append(intent)
        body = {"type": "input", "text": intent.token + chance.choice(hot.orders)}
        key = hot.token if intent.by_token else self._fleet.key
        await self._insist(intent, chance, f"/v1/sessions/{hot.id}/events", body, key)

    async def _push(self, chance: random.Random) -> None:
        skill_id = chance.choice(list(self.pushed))
        intent = self._history.intent(Kind.PUSH, about=skill_id, idempotency_key=_maybe_key(chance, 0.9))
        archive = bundle(**{"notes.md": intent.token + "\n" + chance.randbytes(chance.choice((20, 2_000))).hex()})
        self.pushed[skill_id][hashlib.sha256(archive).hexdigest()] = intent
        await self._insist(intent, chance, f"/v1/skills/{skill_id}/versions", archive, self._fleet.key)

    async def _key(self, chance: random.Random) -> None:
        """A key is made, revoked, and refused from then on."""
        intent = self._history.intent(Kind.KEY, idempotency_key=_maybe_key(chance, 0.9))
        body = {"label": intent.token, "permissions": ["workspace.read"]}
        await self._insist(intent, chance, "/v1/api-keys", body, self._fleet.key)
        shown = [json.loads(answer.body) for answer in intent.answers if answer.status == 201]
        secret = next((record["secret"] for record in shown if record.get("secret")), None)
        if secret is None or chance.random() < 0.5:
            return
        path = f"/v1/api-keys/{shown[0]['id']}/revoke"
        answer = await self._asking.until_answered(chance, "POST", path, idempotency_key=_maybe_key(chance, 1.0))
        if answer is None:
            return
        if answer.status != 200:
            self._history.violated(f"{intent.token}: revoking was answered {answer.status}: {answer.body!r}")
        await asyncio.sleep(REVOCATION_SECONDS)
        for api in self._fleet.apis:
            await self._check_refused(intent.token, api, secret)

    async def _check_refused(self, name: str, api: Api, secret: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            answer, outcome = await self._asking.once(self._asking.request(api, "GET", "/v1/whoami", secret))
            if answer is not None and not may_repeat("GET", keyed=False, outcome=outcome):
                if answer.status != 401:
                    self._history.violated(f"{name}: revoked, and answered {answer.status}")
                return
            await asyncio.sleep(0.1)

    async def _cancel(self, chance: random.Random) -> None:
        hot = chance.choice(self.hot)
        told = [intent.told for intent in hot.intents[-5:]]
        found = next((answer for answer in reversed(told) if answer is not None), None)
        if found is None:
            return
        run_id = json.loads(found.body)["run_id"]
        self._history.cancelling.add(run_id)
        key = _maybe_key(chance, 1.0)
        answer = await self._asking.until_answered(chance, "POST", f"/v1/runs/{run_id}/cancel", idempotency_key=key)
        if answer is not None and answer.status == 200:
            if json.loads(answer.body)["state"] == "cancelled":
                self._history.cancelled.add(run_id)
        elif answer is not None and answer.status != 409:
            self._history.violated(f"cancelling was answered {answer.status}: {answer.body!r}")

    async def _read(self, chance: random.Random) -> None:
        hot = chance.choice(self.hot)
        session = f"/v1/sessions/{hot.id}"
        path = chance.choice((session, f"{session}/events", "/v1/api-keys", "/v1/skills", "/v1/sessions"))
        answer = await self._asking.until_answered(chance, "GET", path)
        if answer is not None and answer.status != 200:
            self._history.violated(f"reading was answered {answer.status}: {answer.body!r}")

    async def _repeat(self, chance: random.Random) -> None:
        """A retry of something long done."""
        if not self._repeatable:
            return
        intent, build = chance.choice(self._repeatable[-300:])
        answer, outcome = await self._asking.once(build())
        if answer is not None and not may_repeat("POST", keyed=True, outcome=outcome):
            intent.answers.append(answer)
            if not answer.replayed:
                self._history.violated(f"{intent.token}: done again by a late retry: {answer.status} {answer.body!r}")
            self._judge(intent)

    async def _reuse(self, chance: random.Random) -> None:
        """A key that was used, with something else."""
        used = [intent for intent, _ in self._repeatable[-300:] if intent.kind is Kind.SUBMIT and not intent.by_token]
        if used:
            intent = chance.choice(used)
            body = {"type": "input", "text": "not this one"}
            path = f"/v1/sessions/{intent.about}/events"
            answer = await self._asking.until_answered(chance, "POST", path, body, intent.idempotency_key)
            if answer is not None and answer.status != 409:
                self._history.violated(f"{intent.token}: its key took another input: {answer.status}")

    # --- how they do it ---

    async def _insist(self, intent: Intent, chance: random.Random, path: str, body: object, key: str) -> None:
        """Tries until it is told; some clients are impatient and try twice at once."""

        def build(api: Api) -> httpx.Request:
            return self._asking.request(api, "POST", path, key, body, intent.idempotency_key)

        copies = 2 if intent.idempotency_key and chance.random() < 0.25 else 1
        await asyncio.gather(*(self._try(intent, chance, build) for _ in range(copies)))
        intent.over = True
        self._judge(intent)
        if intent.idempotency_key and intent.told is None:
            self._history.violated(f"{intent.token}: not told within {PATIENCE_SECONDS:g} s what became of it")
        if intent.idempotency_key and intent.told is not None:
            self._repeatable.append((intent, lambda: build(chance.choice(self._fleet.apis))))

    async def _try(self, intent: Intent, chance: random.Random, build: Callable[[Api], httpx.Request]) -> None:
        while time.monotonic() < intent.begun + PATIENCE_SECONDS:
            answer, outcome = await self._asking.once(build(chance.choice(self._fleet.apis)))
            if answer is not None:
                intent.answers.append(answer)
            if outcome.status in (200, 201):
                return
            if not may_repeat("POST", intent.idempotency_key is not None, outcome):
                self._expected(intent.token, answer)
                return
            await asyncio.sleep(chance.uniform(0.02, 0.3))

    async def _made(self, chance: random.Random, path: str, body: object) -> dict[str, Any]:
        answer = await self._asking.until_answered(chance, "POST", path, body, _maybe_key(chance, 1.0))
        assert answer is not None
        assert answer.status == 201, answer.body
        made: dict[str, Any] = json.loads(answer.body)
        return made

    # --- what they are told ---

    def _expected(self, name: str, answer: Answer | None) -> None:
        """Refused for good: only because nobody can say what became of it."""
        if answer is not None and answer.status not in (500, 503):
            self._history.violated(f"{name}: refused: {answer.status} {answer.body!r}")

    def _judge(self, intent: Intent) -> None:
        for violation in check_answers(intent):
            self._history.violated(violation)

    # --- sessions and their readers ---

    async def _new_session(self, chance: random.Random, orders: tuple[str, ...]) -> Hot:
        while True:
            intent = self._history.intent(Kind.SESSION, idempotency_key=_maybe_key(chance, 1.0))
            await self._insist(intent, chance, "/v1/sessions", {"title": intent.token}, self._fleet.key)
            if intent.told is not None:
                break
        session_id = json.loads(intent.told.body)["id"]
        token = None
        while token is None:
            # A secret is shown once: where the answer was lost, another is made.
            made = await self._asking.until_answered(chance, "POST", f"/v1/sessions/{session_id}/tokens", {})
            token = json.loads(made.body).get("token") if made is not None else None
        hot = Hot(session_id, token, time.monotonic() + chance.uniform(*LIFE_SECONDS), orders, [], [])
        hot.reader = asyncio.create_task(self._read_along(hot, random.Random(f"{self._seed} {intent.token}")))
        return hot

    async def _read_along(self, hot: Hot, chance: random.Random) -> None:
        """One reader over as many connections as it takes. It answers at once when the agent says something, which is
        when a run is about to end."""
        answering: asyncio.Task[None] | None = None
        while True:
            with suppress(httpx.TransportError):
                async for type_ in self._read_stream(hot, chance.choice(self._fleet.apis)):
                    is_free = answering is None or answering.done()
                    if type_ == "message" and is_free and not hot.is_over and chance.random() < 0.5:
                        answering = asyncio.create_task(self._submit_to(hot, chance))
            await asyncio.sleep(chance.uniform(0.02, 0.2))

    async def _read_stream(self, hot: Hot, api: Api) -> AsyncIterator[str]:
        """The types of the entries that come, once they are noted."""
        headers = {"Authorization": f"Bearer {self._fleet.key}", "Accept": "text/event-stream"}
        if hot.seen:
            headers["Last-Event-ID"] = str(hot.seen[-1][0])
        url = f"{api.url}/v1/sessions/{hot.id}/events" + ("" if hot.seen else "?after=0")
        timeout = httpx.Timeout(20.0, read=60.0)
        async with self._asking.http.stream("GET", url, headers=headers, timeout=timeout) as response:
            if response.status_code != 200:
                await response.aread()
                self._asking.check(response)
                return
            number, type_ = None, ""
            async for line in response.aiter_lines():
                if line.startswith("id:"):
                    number = int(line[3:])
                elif line.startswith("event:"):
                    type_ = line[6:].strip()
                elif line == "" and number is not None:
                    hot.seen.append((number, type_))
                    number = None
                    yield type_


def _maybe_key(chance: random.Random, share: float) -> str | None:
    return f"{chance.getrandbits(64):016x}" if chance.random() < share else None

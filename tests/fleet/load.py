"""The load generator. Clients submit with every kind of delivery, answer actions, cancel and retry runs, push, create
and revoke keys, read, and follow the retry rules of the Python client. Every answer goes into the history, which the
auditor compares with the database."""

import asyncio
import hashlib
import json
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import httpx

from quarterdeck.client.calls import may_repeat
from tests.fleet.answerer import Answerer
from tests.fleet.deployment import Deployment
from tests.fleet.history import Answer, History, Intent, Kind
from tests.fleet.inputs import CLIENT_TOOL, LONG_RUNS, SHORT_RUNS, TOOL_LIMITS, TOOL_POLICIES, TOOL_RUNS
from tests.fleet.invariants import check_answers
from tests.fleet.process import ApiProcess
from tests.fleet.requests import RETRY_SECONDS, Requests
from tests.fleet.sessions import LoadSession, StreamReader
from tests.world import bundle

CLIENTS = 8
SHORT_SESSIONS, LONG_SESSIONS, TOOL_SESSIONS = 4, 2, 3
SKILLS = 2
# How long a session is written to.
SESSION_SECONDS = (6.0, 14.0)
# A revoked key must be refused everywhere after this time.
REVOCATION_SECONDS = 1.0
# Late retries use one of the latest so many intents.
RECENT = 300
# Few inputs are queued: pending runs must end before a session settles.
_DELIVERIES = {None: 87, "queue": 8, "interrupt": 5}


class Load:
    def __init__(
        self,
        fleet: Deployment,
        history: History,
        seed: int,
        *,
        short_sessions: int = SHORT_SESSIONS,
        always_keyed: bool = False,
    ) -> None:
        """`always_keyed` sends an Idempotency-Key with every change, as the Python client does. Otherwise some changes
        have none, and their outcome stays unknown if the answer is lost."""
        self.active: list[LoadSession] = []
        # No longer written to, but with a run or a reader that has not finished.
        self.draining: list[LoadSession] = []
        self.finished: list[LoadSession] = []
        # Intents by skill id and by the digest of the pushed bundle.
        self.pushed: dict[str, dict[str, Intent]] = {}
        self.stopping = False
        self._fleet = fleet
        self._history = history
        self._seed = seed
        self._short_sessions = short_sessions
        self._always_keyed = always_keyed
        self._requests = Requests(fleet, history)
        self._reader = StreamReader(fleet, history, self._requests)
        self._answerer = Answerer(fleet, history, self._requests, always_keyed=always_keyed)
        self._repeatable: list[tuple[Intent, Callable[[], httpx.Request]]] = []
        self._actions: list[tuple[int, Callable[[random.Random], Awaitable[None]]]] = [
            (60, self._submit),
            (8, self._repeat_late),
            (2, self._reuse_key),
            (8, self._push),
            (5, self._create_key),
            (3, self._cancel),
            (3, self._retry),
            (6, self._read),
            (3, self._answer_from_list),
            (3, self._answerer.answer_late),
        ]

    async def prepare(self) -> None:
        rng = random.Random(f"{self._seed} setup")
        for _ in range(SKILLS):
            skill = await self._create(rng, "/v1/skills", {"name": f"skill {uuid4()}"})
            self.pushed[skill["id"]] = {}
        kinds = [SHORT_RUNS] * self._short_sessions + [LONG_RUNS] * LONG_SESSIONS + [TOOL_RUNS] * TOOL_SESSIONS
        for texts in kinds:
            self.active.append(await self._new_session(rng, texts))

    async def run(self, clients: int = CLIENTS) -> None:
        """Until `stopping`, and until every request that is under way is answered. `clients` 0: only renews sessions;
        the caller calls `act`."""
        rngs = [random.Random(f"{self._seed} client {number}") for number in range(clients)]
        await asyncio.gather(*map(self._run_client, rngs), self._renew_sessions())

    async def act(self, rng: random.Random) -> None:
        """One action of one client."""
        weights = [weight for weight, _ in self._actions]
        _, action = rng.choices(self._actions, weights)[0]
        await action(rng)

    async def close(self) -> None:
        sessions = [*self.active, *self.draining, *self.finished]
        # The readers first: until they have ended, they start more requests.
        await _cancel([one.reader for one in sessions if one.reader is not None])
        await _cancel([task for one in sessions for task in one.sending])
        await self._requests.http.aclose()

    async def _run_client(self, rng: random.Random) -> None:
        while not self.stopping:
            await self.act(rng)
            await asyncio.sleep(rng.uniform(0.0, 0.03))

    async def _renew_sessions(self) -> None:
        rng = random.Random(f"{self._seed} sessions")
        while not self.stopping:
            for index, session in enumerate(self.active):
                if session.is_over:
                    self.active[index] = await self._new_session(rng, session.texts)
                    self.draining.append(session)
            await asyncio.sleep(0.2)
        for session in self.active:
            session.ends_at = min(session.ends_at, time.monotonic())
        self.draining += self.active
        self.active = []

    # --- actions ---

    async def _submit(self, rng: random.Random) -> None:
        await self._submit_to(rng.choice(self.active), rng)

    async def _submit_to(self, session: LoadSession, rng: random.Random) -> None:
        by_token, key = rng.random() < 0.3, self._maybe_key(rng, 0.8)
        (delivery,) = rng.choices(list(_DELIVERIES), list(_DELIVERIES.values()))
        intent = self._history.new_intent(
            Kind.SUBMIT, target_id=session.id, by_session_token=by_token, idempotency_key=key, delivery=delivery
        )
        session.intents.append(intent)
        texts = SHORT_RUNS if delivery == "queue" and session.texts is LONG_RUNS else session.texts
        body = {"type": "input", "text": rng.choice(texts).replace("TOKEN", intent.token)}
        if delivery is not None:
            body["delivery"] = delivery
        credential = session.token if by_token else self._fleet.key
        await self._send_intent(intent, rng, f"/v1/sessions/{session.id}/events", body, credential)

    async def _push(self, rng: random.Random) -> None:
        skill_id = rng.choice(list(self.pushed))
        intent = self._history.new_intent(Kind.PUSH, target_id=skill_id, idempotency_key=self._maybe_key(rng, 0.9))
        archive = bundle(**{"notes.md": intent.token + "\n" + rng.randbytes(rng.choice((20, 2_000))).hex()})
        self.pushed[skill_id][hashlib.sha256(archive).hexdigest()] = intent
        await self._send_intent(intent, rng, f"/v1/skills/{skill_id}/versions", archive, self._fleet.key)

    async def _create_key(self, rng: random.Random) -> None:
        """Create a key, and in half of the cases revoke it and check that it is refused."""
        intent = self._history.new_intent(Kind.KEY, idempotency_key=self._maybe_key(rng, 0.9))
        body = {"label": intent.token, "permissions": ["workspace.read"]}
        await self._send_intent(intent, rng, "/v1/api-keys", body, self._fleet.key)
        records = [json.loads(answer.body) for answer in intent.answers if answer.status == 201]
        secret = next((record["secret"] for record in records if record.get("secret")), None)
        if secret is None or rng.random() < 0.5:
            return
        path = f"/v1/api-keys/{records[0]['id']}/revoke"
        answer = await self._requests.send_until_answered(rng, "POST", path, idempotency_key=_new_key(rng))
        if answer is None:
            return
        if answer.status != 200:
            self._history.add_violation(f"{intent.token}: revoking was answered {answer.status}: {answer.body!r}")
        await asyncio.sleep(REVOCATION_SECONDS)
        for api in self._fleet.apis:
            await self._check_refused(intent.token, api, secret)

    async def _check_refused(self, token: str, api: ApiProcess, secret: str) -> None:
        deadline = time.monotonic() + RETRY_SECONDS
        while time.monotonic() < deadline:
            answer, outcome = await self._requests.send(self._requests.build(api, "GET", "/v1/whoami", secret))
            if answer is not None and not may_repeat("GET", has_idempotency_key=False, outcome=outcome):
                if answer.status != 401:
                    self._history.add_violation(f"{token}: revoked, and answered {answer.status}")
                return
            await asyncio.sleep(0.1)

    async def _cancel(self, rng: random.Random) -> None:
        run_id = _latest_run(rng.choice(self.active))
        if run_id is None:
            return
        self._history.cancel_requested.add(run_id)
        path = f"/v1/runs/{run_id}/cancel"
        answer = await self._requests.send_until_answered(rng, "POST", path, idempotency_key=_new_key(rng))
        if answer is not None and answer.status == 200:
            if json.loads(answer.body)["state"] == "cancelled":
                self._history.cancelled.add(run_id)
        elif answer is not None and answer.status != 409:
            self._history.add_violation(f"cancelling was answered {answer.status}: {answer.body!r}")

    async def _retry(self, rng: random.Random) -> None:
        """Mostly refused, because a run is active. Failed runs of sessions that are at rest are retried."""
        run_id = _latest_run(rng.choice(self.active))
        if run_id is None:
            return
        path = f"/v1/runs/{run_id}/retry"
        answer = await self._requests.send_until_answered(rng, "POST", path, idempotency_key=_new_key(rng))
        if answer is not None and answer.status not in (201, 409):
            self._history.add_violation(f"retrying was answered {answer.status}: {answer.body!r}")

    async def _answer_from_list(self, rng: random.Random) -> None:
        await self._answerer.answer_from_list(rng, [*self.active, *self.draining])

    async def _read(self, rng: random.Random) -> None:
        session = f"/v1/sessions/{rng.choice(self.active).id}"
        versions = f"/v1/skills/{rng.choice(list(self.pushed))}/versions"
        paths = (session, f"{session}/events", versions, "/v1/api-keys", "/v1/skills", "/v1/sessions")
        answer = await self._requests.send_until_answered(rng, "GET", rng.choice(paths))
        if answer is not None and answer.status != 200:
            self._history.add_violation(f"reading was answered {answer.status}: {answer.body!r}")

    async def _repeat_late(self, rng: random.Random) -> None:
        """Retry a change that was acknowledged some time ago."""
        if not self._repeatable:
            return
        intent, build = rng.choice(self._repeatable[-RECENT:])
        answer, outcome = await self._requests.send(build())
        if answer is not None and not may_repeat("POST", has_idempotency_key=True, outcome=outcome):
            intent.answers.append(answer)
            if not answer.replayed:
                text = f"{intent.token}: done again by a late retry: {answer.status} {answer.body!r}"
                self._history.add_violation(text)
            self._check(intent)

    async def _reuse_key(self, rng: random.Random) -> None:
        """Send a different input with an Idempotency-Key that was used."""
        recent = [intent for intent, _ in self._repeatable[-RECENT:]]
        used = [intent for intent in recent if intent.kind is Kind.SUBMIT and not intent.by_session_token]
        if used:
            intent = rng.choice(used)
            body = {"type": "input", "text": "a different input"}
            path = f"/v1/sessions/{intent.target_id}/events"
            answer = await self._requests.send_until_answered(rng, "POST", path, body, intent.idempotency_key)
            if answer is not None and answer.status != 409:
                self._history.add_violation(f"{intent.token}: its key took another input: {answer.status}")

    # --- attempts ---

    async def _send_intent(self, intent: Intent, rng: random.Random, path: str, body: object, key: str) -> None:
        """Retry until acknowledged. Some clients send the same request twice at once."""

        def build(api: ApiProcess) -> httpx.Request:
            return self._requests.build(api, "POST", path, key, body, intent.idempotency_key)

        copies = 2 if intent.idempotency_key and rng.random() < 0.25 else 1
        await asyncio.gather(*(self._attempt(intent, rng, build) for _ in range(copies)))
        intent.finished = True
        self._check(intent)
        if intent.idempotency_key and intent.acknowledgement is None:
            self._history.add_violation(f"{intent.token}: not acknowledged within {RETRY_SECONDS:g} s")
        if intent.idempotency_key and intent.acknowledgement is not None:
            self._repeatable = self._repeatable[-RECENT:]
            self._repeatable.append((intent, lambda: build(rng.choice(self._fleet.apis))))

    async def _attempt(self, intent: Intent, rng: random.Random, build: Callable[[ApiProcess], httpx.Request]) -> None:
        while time.monotonic() < intent.began + RETRY_SECONDS:
            answer, outcome = await self._requests.send(build(rng.choice(self._fleet.apis)))
            if answer is not None:
                intent.answers.append(answer)
            if outcome.status in (200, 201):
                return
            if not may_repeat("POST", intent.idempotency_key is not None, outcome):
                self._check_refusal(intent.token, answer)
                return
            await asyncio.sleep(rng.uniform(0.02, 0.3))

    def _check_refusal(self, token: str, answer: Answer | None) -> None:
        """The load sends only valid requests: the one acceptable refusal is an unknown outcome."""
        if answer is not None and answer.status not in (500, 503):
            self._history.add_violation(f"{token}: refused: {answer.status} {answer.body!r}")

    def _check(self, intent: Intent) -> None:
        for violation in check_answers(intent):
            self._history.add_violation(violation)

    async def _create(self, rng: random.Random, path: str, body: object) -> dict[str, Any]:
        answer = await self._requests.send_until_answered(rng, "POST", path, body, _new_key(rng))
        assert answer is not None
        assert answer.status == 201, answer.body
        record: dict[str, Any] = json.loads(answer.body)
        return record

    async def _new_session(self, rng: random.Random, texts: tuple[str, ...]) -> LoadSession:
        tools: dict[str, Any] = {}
        if texts is TOOL_RUNS:
            tools = {"tool_policy": rng.choice(TOOL_POLICIES), "client_tools": [CLIENT_TOOL]}
            tools["limits"] = rng.choice(TOOL_LIMITS)
        acknowledgement = None
        while acknowledgement is None:
            intent = self._history.new_intent(Kind.SESSION, idempotency_key=_new_key(rng))
            await self._send_intent(intent, rng, "/v1/sessions", {"title": intent.token} | tools, self._fleet.key)
            acknowledgement = intent.acknowledgement
        session_id = json.loads(acknowledgement.body)["id"]
        token = None
        while token is None:
            # A token is shown once. If the answer was lost, make another token.
            path, body = f"/v1/sessions/{session_id}/tokens", {"may_resolve": True}
            answer = await self._requests.send_until_answered(rng, "POST", path, body)
            token = json.loads(answer.body).get("token") if answer is not None else None
        ends_at = time.monotonic() + rng.uniform(*SESSION_SECONDS)
        session = LoadSession(session_id, token, ends_at, texts, [], [], sending=set())
        reader_rng = random.Random(f"{self._seed} {intent.token}")
        reading = self._reader.follow(session, reader_rng, self._submit_to, self._answerer.answer)
        session.reader = asyncio.create_task(reading)
        return session

    def _maybe_key(self, rng: random.Random, share: float) -> str | None:
        return _new_key(rng) if self._always_keyed or rng.random() < share else None


async def _cancel(tasks: list["asyncio.Task[None]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _latest_run(session: LoadSession) -> str | None:
    latest = [intent.acknowledgement for intent in session.intents[-5:]]
    submitted = next((answer for answer in reversed(latest) if answer is not None), None)
    return None if submitted is None else str(json.loads(submitted.body)["run_id"])


def _new_key(rng: random.Random) -> str:
    return f"{rng.getrandbits(64):016x}"

"""Clients that answer actions: as soon as the log shows them, from the list of open ones, twice at once with different
answers, and again long after the answer was acknowledged."""

import asyncio
import json
import random
import time
from typing import Any

from tests.fleet.action_invariants import ADD_NOTE
from tests.fleet.deployment import Deployment
from tests.fleet.fleet import EXPIRING
from tests.fleet.history import History, SentAnswer
from tests.fleet.requests import RETRY_SECONDS, Requests
from tests.fleet.sessions import LoadSession

# Left to expire, where actions of that kind expire soon.
IGNORED = 0.1
DISAGREEING = 0.15
# Late answers are sent to one of the latest so many.
RECENT = 200


class Answerer:
    def __init__(self, fleet: Deployment, history: History, requests: Requests, *, always_keyed: bool) -> None:
        self._fleet = fleet
        self._history = history
        self._requests = requests
        self._always_keyed = always_keyed

    async def answer(self, session: LoadSession, rng: random.Random, action: dict[str, Any]) -> None:
        """Answer an action of the log, after a moment."""
        if action["kind"] in EXPIRING and rng.random() < IGNORED:
            return
        await asyncio.sleep(rng.choice((0.0, 0.0, rng.uniform(0.0, 1.5))))
        resolutions = [_resolution(rng, action["kind"], action["tool"])]
        if rng.random() < DISAGREEING:
            resolutions.append(_resolution(rng, action["kind"], action["tool"]))
        # A session token cannot raise a limit.
        by_token = action["kind"] != "budget" and rng.random() < 0.5
        credential = session.token if by_token else self._fleet.key
        await asyncio.gather(
            *(self._send(self._new(session.id, action["action_id"], one, rng), rng, credential) for one in resolutions)
        )

    async def answer_from_list(self, rng: random.Random, sessions: list[LoadSession]) -> None:
        """Answer one of the newest open actions: mostly one that another client answers too."""
        answer = await self._requests.send_until_answered(rng, "GET", "/v1/actions?state=open&limit=20")
        if answer is None:
            return
        if answer.status != 200:
            self._history.add_violation(f"listing actions was answered {answer.status}: {answer.body!r}")
            return
        ids = {session.id for session in sessions}
        found = [item for item in json.loads(answer.body)["items"] if item["session_id"] in ids]
        if found:
            action = rng.choice(found)
            resolution = _resolution(rng, action["kind"], action["tool"])
            await self._send(self._new(action["session_id"], action["id"], resolution, rng), rng, self._fleet.key)

    async def answer_late(self, rng: random.Random) -> None:
        """The same answer again is acknowledged again, and any other is refused."""
        recent = [sent for sent in self._history.sent_answers[-RECENT:] if sent.answers]
        if not recent:
            return
        sent = rng.choice(recent)
        if rng.random() < 0.3:
            other = {"decision": "deny", "message": f"late {rng.getrandbits(32)}"}
            if sent.resolution.get("decision") in ("allow", "deny"):
                sent = self._new(sent.session_id, sent.action_id, other, rng)
        await self._send(sent, rng, self._fleet.key)

    def _new(self, session_id: str, action_id: str, resolution: dict[str, Any], rng: random.Random) -> SentAnswer:
        keyed = self._always_keyed or rng.random() < 0.6
        key = f"{rng.getrandbits(64):016x}" if keyed else None
        return self._history.new_answer(session_id, action_id, resolution, key)

    async def _send(self, sent: SentAnswer, rng: random.Random, credential: str) -> None:
        """Until it is acknowledged or refused. An answer can be repeated without an Idempotency-Key."""
        path, deadline = f"/v1/actions/{sent.action_id}/resolve", time.monotonic() + RETRY_SECONDS
        while time.monotonic() < deadline:
            api = rng.choice(self._fleet.apis)
            # A receipt belongs to its caller: the key of another one must not decide.
            key = sent.idempotency_key if credential == self._fleet.key else None
            request = self._requests.build(api, "POST", path, credential, sent.resolution, key)
            answer, outcome = await self._requests.send(request)
            if answer is not None and (answer.status == 200 or (answer.status == 409 and outcome.retry_after is None)):
                sent.answers.append(answer)
                return
            if answer is not None and answer.status not in (409, 429, 500, 503):
                text = f"{sent.token}: {sent.resolution} was answered {answer.status}: {answer.body!r}"
                self._history.add_violation(text)
                return
            await asyncio.sleep(rng.uniform(0.02, 0.3))
        self._history.add_violation(f"{sent.token}: not answered within {RETRY_SECONDS:g} s")


def _resolution(rng: random.Random, kind: str, tool: str | None) -> dict[str, Any]:
    number = rng.getrandbits(32)
    match kind:
        case "approval":
            allow: dict[str, Any] = {"decision": "allow"}
            edited = allow | {"arguments": {"text": f"edited {number}"}} if tool == ADD_NOTE else allow
            deny = {"decision": "deny", "message": f"Not now, {number}."}
            remember = allow | {"remember": "session"}
            return rng.choices([allow, edited, deny, remember], [60, 15, 20, 5])[0]
        case "tool_result":
            return rng.choice(
                [{"result": f"found {number}"}, {"result": {"n": number}}, {"result": "no", "is_error": True}]
            )
        case "unknown_outcome":
            decision = rng.choices(["retry", "done", "failed"], [60, 20, 20])[0]
            return {"decision": decision} | ({"result": f"seen {number}"} if decision == "done" else {})
        case _:
            return rng.choice([{"decision": "stop"}, {"decision": "raise", "max_tokens": 10**9}])

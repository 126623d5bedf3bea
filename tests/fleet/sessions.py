"""Sessions that the load writes to, each with a client that follows its event stream."""

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import httpx
from msgspec import Struct

from tests.fleet.deployment import Deployment
from tests.fleet.history import History, Intent
from tests.fleet.invariants import Entry
from tests.fleet.process import ApiProcess
from tests.fleet.requests import Requests


class LoadSession(Struct):
    id: str
    token: str
    # The load writes to it until then (monotonic seconds).
    ends_at: float
    # Texts of its inputs, with `TOKEN` for the token of the intent. They tell the demo model what to do.
    texts: tuple[str, ...]
    intents: list[Intent]
    # Ids and types of the events that its reader received, in order.
    received: list[tuple[int, str]]
    reader: "asyncio.Task[None] | None" = None
    # Inputs and answers to actions that its reader sends.
    sending: set["asyncio.Task[None]"] = set()

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self.ends_at

    @property
    def is_settled(self) -> bool:
        """No more inputs will come: the time is over and no attempt is under way."""
        return self.is_over and all(intent.finished for intent in self.intents)

    def has_received(self, entries: Sequence[Entry]) -> bool:
        """Whether the reader is at the end of the log."""
        return not entries or bool(self.received and self.received[-1][0] == entries[-1].id)


Submit = Callable[[LoadSession, random.Random], Coroutine[Any, Any, None]]
# With the data of the event action.required.
AnswerAction = Callable[[LoadSession, random.Random, dict[str, Any]], Coroutine[Any, Any, None]]


class StreamReader:
    def __init__(self, fleet: Deployment, history: History, requests: Requests) -> None:
        self._fleet = fleet
        self._history = history
        self._requests = requests

    async def follow(
        self, session: LoadSession, rng: random.Random, submit: Submit, answer_action: AnswerAction
    ) -> None:
        """Read events for ever, over as many connections as needed. Answer actions, and some messages of the agent at
        once: a run is about to end then, so such an input races with its end."""
        submitting: asyncio.Task[None] | None = None
        while True:
            with suppress(httpx.TransportError):
                async for event_type, data in self._read(session, rng.choice(self._fleet.apis)):
                    is_idle = submitting is None or submitting.done()
                    if event_type == "message" and is_idle and not session.is_over and rng.random() < 0.5:
                        submitting = self._send(session, submit(session, rng))
                    elif event_type == "action.required":
                        self._send(session, answer_action(session, rng, json.loads(data)["data"]))
            await asyncio.sleep(rng.uniform(0.02, 0.2))

    def _send(self, session: LoadSession, sending: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(sending)
        session.sending.add(task)
        task.add_done_callback(partial(self._sent, session))
        return task

    def _sent(self, session: LoadSession, task: "asyncio.Task[None]") -> None:
        session.sending.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            self._history.add_violation(f"{session.id}: a client of the load failed: {fault!r}")

    async def _read(self, session: LoadSession, api: ApiProcess) -> AsyncIterator[tuple[str, str]]:
        """Yields the type and the JSON of each event after it was added to `received`."""
        headers = {"Authorization": f"Bearer {self._fleet.key}", "Accept": "text/event-stream"}
        if session.received:
            headers["Last-Event-ID"] = str(session.received[-1][0])
        url = f"{api.url}/v1/sessions/{session.id}/events" + ("" if session.received else "?after=0")
        timeout = httpx.Timeout(20.0, read=60.0)
        async with self._requests.http.stream("GET", url, headers=headers, timeout=timeout) as response:
            if response.status_code != 200:
                await response.aread()
                self._requests.check(response)
                return
            number, event_type, data = None, "", ""
            async for line in response.aiter_lines():
                if line.startswith("id:"):
                    number = int(line[3:])
                elif line.startswith("event:"):
                    event_type = line[6:].strip()
                elif line.startswith("data:"):
                    data = line[5:]
                elif line == "" and number is not None:
                    session.received.append((number, event_type))
                    number = None
                    yield event_type, data

"""Backlogs in Redis or Valkey, one for all processes on all machines.

Requests that come while a call is under way are asked about together in the next one: a crowd, which is when limits
matter, costs little more than one. While Redis is away nothing is limited: a limit protects the service, and must not
be what brings it down.
"""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from msgspec import Struct
from redis.asyncio import Redis
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from quarterdeck.auth.rate_limits.model import Rate, Standing, Taken
from quarterdeck.core.logging import log

_ASK_AGAIN_SECONDS = 1.0
_SAY_AGAIN_SECONDS = 5.0
# Of one call, which keeps the server from everything else while it runs.
_MOST_TOGETHER = 128

# KEYS: for each request one by each rate. ARGV: burst and interval of each rate. Returned for each request: whether it
# is allowed, and its backlogs. The rule is that of `rules.py`, by the server's clock: those of processes may differ. A
# key is gone when its backlog is.
_TAKE = """
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local rates = #ARGV / 2
local answers = {}
for before = 0, #KEYS - 1, rates do
    local allowed, backlogs = 1, {}
    for i = 1, rates do
        local burst, interval = tonumber(ARGV[2 * i - 1]), tonumber(ARGV[2 * i])
        backlogs[i] = math.max(0, tonumber(redis.call('GET', KEYS[before + i]) or 0) - now)
        if backlogs[i] + interval > burst * interval then allowed = 0 end
    end
    table.insert(answers, allowed)
    for i = 1, rates do
        if allowed == 1 then
            backlogs[i] = backlogs[i] + tonumber(ARGV[2 * i])
            local gone_at = string.format('%.0f', now + backlogs[i])
            redis.call('SET', KEYS[before + i], gone_at, 'PX', math.ceil(backlogs[i] / 1000) + 1)
        end
        table.insert(answers, backlogs[i])
    end
end
return answers
"""


def is_redis_url(url: str) -> bool:
    try:
        parse_url(url)
    except ValueError:
        return False
    return True


class _Waiting(Struct, frozen=True, eq=False):
    keys: list[str]
    result: "asyncio.Future[Taken | None]"


class Shared:
    def __init__(self, url: str, rates: Sequence[Rate], wait_seconds: float) -> None:
        self._redis = Redis.from_url(
            url,
            # What was given up on ends soon too, so that its connection is not waited for.
            socket_timeout=wait_seconds,
            socket_connect_timeout=wait_seconds,
            # Once more, at once: a server that was restarted leaves connections that do not know it yet.
            retry=Retry(NoBackoff(), 1),
        )
        self._take = self._redis.register_script(_TAKE)
        self._rates = tuple(rates)
        self._wait_seconds = wait_seconds
        self._waiting: deque[_Waiting] = deque()
        self._sender: asyncio.Task[None] | None = None
        self._overdue: set[asyncio.Task[Any]] = set()
        self._away = False
        self._ask_at = 0.0
        self._say_at = 0.0

    async def close(self) -> None:
        await asyncio.gather(*self._overdue, return_exceptions=True)
        await self._redis.aclose()

    async def take(self, holders: Sequence[UUID]) -> Taken | None:
        """One holder for each rate. None: Redis is away."""
        now = time.monotonic()
        if self._away:
            if now < self._ask_at:
                return None
            # One request finds out; the others do not wait with it.
            self._ask_at = now + _ASK_AGAIN_SECONDS
        pairs = zip(self._rates, holders, strict=True)
        keys = [f"quarterdeck:limit:{rate.name}:{holder}" for rate, holder in pairs]
        waiting = _Waiting(keys, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if self._sender is None:
            self._sender = asyncio.create_task(self._send())
        return await waiting.result

    async def _send(self) -> None:
        """Until nobody waits. Never raises: those who wait would wait for ever."""
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), _MOST_TOGETHER))]
            try:
                results: Sequence[Taken | None] = self._read(await self._ask(batch))
            except Exception as fault:
                self._is_away(fault)
                # Who came meanwhile is not kept waiting for the same.
                batch += self._waiting
                self._waiting.clear()
                results = [None] * len(batch)
            for waiting, result in zip(batch, results, strict=True):
                # Its caller may have left.
                if not waiting.result.done():
                    waiting.result.set_result(result)
        self._sender = None

    async def _ask(self, batch: Sequence[_Waiting]) -> list[int]:
        """What takes too long is left to end by itself: to cancel it would be to trust that the connection is dropped
        on which an answer is still to come."""
        keys = [key for waiting in batch for key in waiting.keys]
        numbers = [number for rate in self._rates for number in (rate.burst, rate.interval_us)]
        task = asyncio.create_task(self._take(keys, numbers))
        done, _ = await asyncio.wait({task}, timeout=self._wait_seconds)
        if not done:
            self._overdue.add(task)
            task.add_done_callback(self._forget)
            raise TimeoutError
        found: list[int] = task.result()
        if self._away:
            self._away = False
            log.warning("rate limits hold again: Redis is back")
        return found

    def _read(self, answers: list[int]) -> list[Taken]:
        size = 1 + len(self._rates)
        groups = [answers[first : first + size] for first in range(0, len(answers), size)]
        return [
            Taken(bool(allowed), tuple(map(Standing, self._rates, backlogs_us))) for allowed, *backlogs_us in groups
        ]

    def _forget(self, task: "asyncio.Task[Any]") -> None:
        self._overdue.discard(task)
        if not task.cancelled():
            # Reading it marks it as seen: nobody waits for it any more.
            task.exception()

    def _is_away(self, fault: Exception) -> None:
        now = time.monotonic()
        self._away = True
        self._ask_at = now + _ASK_AGAIN_SECONDS
        if now >= self._say_at:
            self._say_at = now + _SAY_AGAIN_SECONDS
            log.warning("rate limits do not hold: Redis cannot be reached", exc_info=fault)

"""Rate-limit state in Redis or Valkey, shared by all processes on all machines.

Requests that arrive while a call to Redis is pending are sent together in the next call. While Redis is unreachable
nothing is limited: an outage of the limiter must not become an outage of the service.
"""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from redis.asyncio import Redis
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from quarterdeck.auth.rate_limits import Keys, Rate, RateDecision, RateState
from quarterdeck.core.logging import log

_RETRY_SECONDS = 1.0
_LOG_INTERVAL_SECONDS = 5.0
# Redis executes a script without interruption: a larger batch would delay its other clients.
_MAX_BATCH = 128

# The rule of `rules.py`. KEYS: one per rate for each request. ARGV: burst and interval of each rate. Result: for each
# request whether it is allowed (0 or 1), then its backlogs. Uses the clock of Redis because clocks of processes differ.
# A key expires when its backlog is empty.
_CHARGE = """
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
            local empty_at = string.format('%.0f', now + backlogs[i])
            redis.call('SET', KEYS[before + i], empty_at, 'PX', math.ceil(backlogs[i] / 1000) + 1)
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


class _Pending(Struct, frozen=True, eq=False):
    keys: Keys
    result: "asyncio.Future[RateDecision | None]"


class RedisBackend:
    def __init__(self, url: str, rates: Sequence[Rate], wait_seconds: float) -> None:
        self._redis = Redis.from_url(
            url,
            # Calls that `_call` gave up on also end soon and release their connection.
            socket_timeout=wait_seconds,
            socket_connect_timeout=wait_seconds,
            # One immediate retry: after a restart of Redis the pooled connections are dead.
            retry=Retry(NoBackoff(), 1),
        )
        self._script = self._redis.register_script(_CHARGE)
        self._rates = tuple(rates)
        self._wait_seconds = wait_seconds
        self._queue: deque[_Pending] = deque()
        self._sender: asyncio.Task[None] | None = None
        self._overdue: set[asyncio.Task[Any]] = set()
        self._is_down = False
        # On the monotonic clock.
        self._retry_at = 0.0
        self._log_at = 0.0

    async def close(self) -> None:
        await asyncio.gather(*self._overdue, return_exceptions=True)
        await self._redis.aclose()

    async def charge(self, keys: Keys) -> RateDecision | None:
        """None if Redis is unreachable."""
        now = time.monotonic()
        if self._is_down:
            if now < self._retry_at:
                return None
            # This request probes Redis; the others do not wait for it.
            self._retry_at = now + _RETRY_SECONDS
        pending = _Pending(keys, asyncio.get_running_loop().create_future())
        self._queue.append(pending)
        if self._sender is None:
            self._sender = asyncio.create_task(self._send())
        return await pending.result

    async def _send(self) -> None:
        """Runs until the queue is empty. Must not raise: pending requests would wait forever."""
        while self._queue:
            batch = [self._queue.popleft() for _ in range(min(len(self._queue), _MAX_BATCH))]
            try:
                results: Sequence[RateDecision | None] = self._decisions(await self._call(batch))
            except Exception as fault:
                self._mark_down(fault)
                # Requests queued meanwhile would time out in the same way.
                batch += self._queue
                self._queue.clear()
                results = [None] * len(batch)
            for pending, result in zip(batch, results, strict=True):
                # The request may have been cancelled.
                if not pending.result.done():
                    pending.result.set_result(result)
        self._sender = None

    async def _call(self, batch: Sequence[_Pending]) -> list[int]:
        """A call that times out is not cancelled: its connection could return to the pool with a reply still to
        come."""
        keys = [key for pending in batch for key in pending.keys]
        numbers = [number for rate in self._rates for number in (rate.burst, rate.interval_us)]
        task = asyncio.create_task(self._script(keys, numbers))
        done, _ = await asyncio.wait({task}, timeout=self._wait_seconds)
        if not done:
            self._overdue.add(task)
            task.add_done_callback(self._finish_overdue)
            raise TimeoutError
        reply: list[int] = task.result()
        if self._is_down:
            self._is_down = False
            log.warning("Redis is reachable again: rate limits are enforced")
        return reply

    def _decisions(self, reply: list[int]) -> list[RateDecision]:
        size = 1 + len(self._rates)
        groups = [reply[first : first + size] for first in range(0, len(reply), size)]
        return [
            RateDecision(bool(allowed), tuple(map(RateState, self._rates, backlogs_us)))
            for allowed, *backlogs_us in groups
        ]

    def _finish_overdue(self, task: "asyncio.Task[Any]") -> None:
        self._overdue.discard(task)
        if not task.cancelled():
            # asyncio logs exceptions that are never retrieved.
            task.exception()

    def _mark_down(self, fault: Exception) -> None:
        now = time.monotonic()
        self._is_down = True
        self._retry_at = now + _RETRY_SECONDS
        if now >= self._log_at:
            self._log_at = now + _LOG_INTERVAL_SECONDS
            log.warning("Redis is unreachable: rate limits are not enforced", exc_info=fault)

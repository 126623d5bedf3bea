"""Backlogs in Redis or Valkey, one for all processes on all machines.

While it is away nothing is limited: a limit protects the service, and must not be what brings it down.
"""

import asyncio
import time
from collections.abc import Sequence
from uuid import UUID

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from quarterdeck.logs import log
from quarterdeck.rate_limits.model import Rate, Standing, Taken

# A request waits no longer than this, which it may do with a database connection in hand.
_PATIENCE_SECONDS = 0.25
_ASK_AGAIN_SECONDS = 1.0
_SAY_AGAIN_SECONDS = 5.0
_CONNECTIONS = 16

# By the server's clock: those of the processes may differ. A key is gone when its backlog is. The rules are those of
# `rules.py`.
_TAKE = """
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local backlogs, allowed = {}, 1
for i, key in ipairs(KEYS) do
    local burst, interval = tonumber(ARGV[2 * i - 1]), tonumber(ARGV[2 * i])
    backlogs[i] = math.max(0, tonumber(redis.call('GET', key) or 0) - now)
    if backlogs[i] + interval > burst * interval then allowed = 0 end
end
if allowed == 1 then
    for i, key in ipairs(KEYS) do
        backlogs[i] = backlogs[i] + tonumber(ARGV[2 * i])
        local gone_at = string.format('%.0f', now + backlogs[i])
        redis.call('SET', key, gone_at, 'PX', math.ceil(backlogs[i] / 1000) + 1)
    end
end
return {allowed, unpack(backlogs)}
"""


def is_redis_url(url: str) -> bool:
    try:
        parse_url(url)
    except ValueError:
        return False
    return True


class Shared:
    def __init__(self, url: str) -> None:
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=_CONNECTIONS,
            timeout=_PATIENCE_SECONDS,
            # Once more, at once: a server that was restarted leaves connections that do not know it yet.
            retry=Retry(NoBackoff(), 1),
        )
        self._redis = Redis.from_pool(pool)
        self._take = self._redis.register_script(_TAKE)
        self._away = False
        self._ask_at = 0.0
        self._say_at = 0.0

    async def close(self) -> None:
        await self._redis.aclose()

    async def take(self, workspace_id: UUID, charges: Sequence[tuple[Rate, UUID]]) -> Taken | None:
        """None: it is away."""
        now = time.monotonic()
        if self._away:
            if now < self._ask_at:
                return None
            # One request finds out; the others do not wait with it.
            self._ask_at = now + _ASK_AGAIN_SECONDS
        # What stands in braces decides where a cluster keeps a key: those of one call must be together.
        keys = [f"quarterdeck:limit:{{{workspace_id}}}:{rate.name}:{holder}" for rate, holder in charges]
        numbers = [number for rate, _ in charges for number in (rate.burst, rate.interval_us)]
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                allowed, *backlogs_us = await self._take(keys, numbers)
        except (RedisError, OSError, TimeoutError) as fault:
            self._is_away(fault)
            return None
        if self._away:
            self._away = False
            log.warning("rate limits hold again: Redis is back")
        pairs = zip(charges, backlogs_us, strict=True)
        return Taken(bool(allowed), tuple(Standing(rate, int(backlog_us)) for (rate, _), backlog_us in pairs))

    def _is_away(self, fault: Exception) -> None:
        now = time.monotonic()
        self._away = True
        self._ask_at = now + _ASK_AGAIN_SECONDS
        if now >= self._say_at:
            self._say_at = now + _SAY_AGAIN_SECONDS
            log.warning("rate limits do not hold: Redis cannot be reached", exc_info=fault)

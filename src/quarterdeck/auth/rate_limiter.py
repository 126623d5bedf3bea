"""The rate limiter of a process, and the limit as it applies to one request."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from quarterdeck.auth import rate_limits
from quarterdeck.auth.rate_limits import ChargedCaller, Keys, MemoryBackend, Rate, RateDecision, RateState
from quarterdeck.core import errors
from quarterdeck.core.actors import Credential, Principal
from quarterdeck.core.settings import LimitSettings

if TYPE_CHECKING:
    from quarterdeck.auth.redis_rate_limits import RedisBackend

_MAX_KNOWN_CREDENTIALS = 10_000


class RateLimiter:
    def __init__(self, settings: LimitSettings, processes: int) -> None:
        """Without Redis, each of the server's processes enforces its share of the limits."""
        self.rates = rate_limits.rates(settings, processes if settings.redis_url is None else 1)
        self._memory = MemoryBackend(self.rates)
        self._redis = _redis_backend(settings, self.rates)
        # Callers by credential, as of the last successful check of that credential.
        self._callers: dict[Credential, ChargedCaller] = {}

    async def close(self) -> None:
        if self._redis is not None:
            await self._redis.close()

    def known_caller(self, credential: Credential) -> ChargedCaller | None:
        caller = self._callers.pop(credential, None)
        if caller is not None:
            # To the end: the credential that was not used for the longest time is forgotten first.
            self._callers[credential] = caller
        return caller

    def remember(self, credential: Credential, principal: Principal) -> ChargedCaller:
        owner_ids = {
            "credential": principal.credential_id,
            "workspace": principal.workspace_id,
        }
        keys = tuple(rate.key(owner_ids[rate.name]) for rate in self.rates)
        caller = self._callers[credential] = ChargedCaller(principal.workspace_id, keys)
        if len(self._callers) > _MAX_KNOWN_CREDENTIALS:
            del self._callers[next(iter(self._callers))]
        return caller

    def forget(self, credential: Credential) -> None:
        self._callers.pop(credential, None)

    async def charge(self, keys: Keys) -> RateDecision | None:
        """None if Redis is unreachable. The request is then allowed."""
        if self._redis is not None:
            return await self._redis.charge(keys)
        return self._memory.charge(keys, time.monotonic_ns() // 1000)


def _redis_backend(settings: LimitSettings, rates: tuple[Rate, ...]) -> "RedisBackend | None":
    if not rates or settings.redis_url is None:
        return None
    # Imported late: the Redis client loads slowly, and most installations do not use it.
    from quarterdeck.auth.redis_rate_limits import RedisBackend

    return RedisBackend(settings.redis_url, rates, settings.redis_wait_seconds)


class RequestLimit:
    """The rate limit of one request. The request is charged once, even if its credential is checked several times."""

    def __init__(self, limiter: RateLimiter) -> None:
        self._limiter = limiter
        self._caller: ChargedCaller | None = None
        self._is_charged = False
        self._decision: RateDecision | None = None

    @property
    def is_allowed(self) -> bool:
        return not self._limiter.rates or (self._is_charged and (self._decision is None or self._decision.allowed))

    @property
    def workspace_id(self) -> UUID | None:
        return None if self._caller is None else self._caller.workspace_id

    @property
    def is_charged(self) -> bool:
        return self._is_charged

    @property
    def states(self) -> tuple[RateState, ...]:
        return () if self._decision is None else self._decision.states

    async def charge_known(self, credential: Credential) -> None:
        """Charge the caller of a credential that was valid before, without waiting with a database connection in hand.
        A refusal is raised later, by `charge`: an invalid credential must be answered 401, not 429."""
        self._caller = self._limiter.known_caller(credential)
        if self._caller is not None:
            await self._charge(self._caller)

    async def charge(self, credential: Credential, principal: Principal) -> None:
        if self._caller is None:
            self._caller = self._limiter.remember(credential, principal)
            await self._charge(self._caller)
        elif self._caller.workspace_id != principal.workspace_id:
            # Of a device, whose person has left the workspace that was charged: the next request is charged right.
            self._caller = self._limiter.remember(credential, principal)
        if not self.is_allowed:
            longest = max(self.states, key=rate_limits.wait_us)
            seconds = rate_limits.rounded_up(rate_limits.wait_us(longest), rate_limits.SECOND_US)
            raise errors.too_many(longest.rate.name, seconds)

    def forget(self, credential: Credential) -> None:
        self._limiter.forget(credential)
        self._caller, self._is_charged, self._decision = None, False, None

    async def _charge(self, caller: ChargedCaller) -> None:
        if self._limiter.rates:
            self._is_charged = True
            self._decision = await self._limiter.charge(caller.keys)


# The response headers of draft-ietf-httpapi-ratelimit-headers-11.

_REMAINING = b"ratelimit"


class RateLimitHeaders:
    """Headers as ASGI sends them. Every response has them, so the constant one is encoded once."""

    def __init__(self, rates: Sequence[Rate]) -> None:
        self._policy = (b"ratelimit-policy", ", ".join(map(_policy, rates)).encode())

    def of(self, limit: RequestLimit) -> list[tuple[bytes, bytes]]:
        """Empty if the request was not charged."""
        if not limit.is_charged:
            return []
        if not limit.states:
            return [self._policy]
        return [self._policy, (_REMAINING, ", ".join(map(_remaining, limit.states)).encode())]


def _policy(rate: Rate) -> str:
    requests, seconds = rate_limits.quota(rate)
    return f'"{rate.name}";q={requests};w={seconds}'


def _remaining(state: RateState) -> str:
    seconds = rate_limits.rounded_up(rate_limits.until_more_us(state), rate_limits.SECOND_US)
    return f'"{state.rate.name}";r={rate_limits.remaining(state)};t={seconds}'

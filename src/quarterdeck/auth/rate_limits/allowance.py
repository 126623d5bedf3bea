"""Whether a request is one too many. Charged once, however often its caller is checked on the way."""

import time
from typing import TYPE_CHECKING

from quarterdeck.auth.rate_limits import rules
from quarterdeck.auth.rate_limits.memory import Memory
from quarterdeck.auth.rate_limits.model import Payer, Rate, Standing, Taken
from quarterdeck.core import errors
from quarterdeck.core.actors import Credential, Principal
from quarterdeck.core.settings import LimitSettings

if TYPE_CHECKING:
    from quarterdeck.auth.rate_limits.shared import Shared

_MOST_PAYERS = 10_000


class RateLimits:
    def __init__(self, settings: LimitSettings, processes: int) -> None:
        """Without Redis, each of the processes of this server gives out its share."""
        self.rates = rules.rates(settings, processes if settings.redis_url is None else 1)
        self._memory = Memory()
        self._shared = _shared(settings, self.rates)
        # Whose a credential was when it was last seen alive.
        self._payers: dict[Credential, Payer] = {}

    async def close(self) -> None:
        if self._shared is not None:
            await self._shared.close()

    def payer(self, credential: Credential) -> Payer | None:
        return self._payers.get(credential)

    def remember(self, credential: Credential, payer: Payer) -> None:
        self._payers[credential] = payer
        if len(self._payers) > _MOST_PAYERS:
            del self._payers[next(iter(self._payers))]

    def forget(self, credential: Credential) -> None:
        self._payers.pop(credential, None)

    async def take(self, payer: Payer) -> Taken | None:
        """None: nobody can tell."""
        holders = {"credential": payer.credential_id, "workspace": payer.workspace_id}
        charges = [(rate, holders[rate.name]) for rate in self.rates]
        if self._shared is not None:
            return await self._shared.take([holder for _, holder in charges])
        return self._memory.take(charges, time.monotonic_ns() // 1000)


def _shared(settings: LimitSettings, rates: tuple[Rate, ...]) -> "Shared | None":
    if not rates or settings.redis_url is None:
        return None
    # Here, not above: the client of Redis takes long to load, and most have none.
    from quarterdeck.auth.rate_limits.shared import Shared

    return Shared(settings.redis_url, rates, settings.redis_wait_seconds)


class Allowance:
    """Of one request."""

    def __init__(self, limits: RateLimits) -> None:
        self._limits = limits
        self._is_charged = False
        self._taken: Taken | None = None

    @property
    def is_granted(self) -> bool:
        return not self._limits.rates or (self._is_charged and (self._taken is None or self._taken.allowed))

    @property
    def rates(self) -> tuple[Rate, ...]:
        """Those that the request was charged by."""
        return self._limits.rates if self._is_charged else ()

    @property
    def standings(self) -> tuple[Standing, ...]:
        return () if self._taken is None else self._taken.standings

    async def charge_ahead(self, credential: Credential) -> None:
        """While no connection to the database is held, if the credential is one that was seen before. Whether it is
        still alive comes first, so that a refusal is kept back until then."""
        payer = self._limits.payer(credential) if self._limits.rates else None
        if payer is not None:
            await self._charge(payer)

    async def settle(self, credential: Credential, principal: Principal) -> None:
        """For a credential that is alive."""
        if self._limits.rates and not self._is_charged:
            payer = Payer(principal.session_token_id or principal.api_key_id, principal.workspace_id)
            self._limits.remember(credential, payer)
            await self._charge(payer)
        if not self.is_granted:
            longest = max(self.standings, key=rules.wait_us)
            seconds = rules.rounded_up(rules.wait_us(longest), rules.SECOND_US)
            raise errors.too_many(longest.rate.name, seconds)

    def void(self, credential: Credential) -> None:
        """For one that is not, though it may have been: it shall not use up what is its workspace's."""
        self._limits.forget(credential)
        self._is_charged, self._taken = False, None

    async def _charge(self, payer: Payer) -> None:
        self._is_charged = True
        self._taken = await self._limits.take(payer)

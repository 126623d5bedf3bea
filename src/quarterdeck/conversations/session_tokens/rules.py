"""How long tokens live."""

from datetime import datetime, timedelta

from quarterdeck.api_keys.rules import check_expiry, check_life
from quarterdeck.core import errors
from quarterdeck.core.actors import Principal
from quarterdeck.core.settings import TokenSettings


def token_expiry(asked: datetime | None, now: datetime, principal: Principal, settings: TokenSettings) -> datetime:
    """What was asked for, if the limits allow it. By default a token ends no later than the key that makes it."""
    if asked is None:
        usual = now + timedelta(seconds=settings.default_life_seconds)
        return usual if principal.expires_at is None else min(usual, principal.expires_at)
    check_expiry(asked, now)
    if asked > now + timedelta(seconds=settings.max_life_seconds):
        raise errors.invalid(f"expires_at is more than {settings.max_life_seconds} seconds away.")
    check_life(principal, asked)
    return asked

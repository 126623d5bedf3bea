"""Rules for the life of session tokens."""

from datetime import datetime, timedelta

from quarterdeck.api_keys.rules import check_expiry, check_life
from quarterdeck.core import errors
from quarterdeck.core.actors import Principal
from quarterdeck.core.settings import TokenSettings


def token_expiry(requested: datetime | None, now: datetime, principal: Principal, settings: TokenSettings) -> datetime:
    """The requested expiry, checked against the limits. The default is no later than the expiry of the creating key."""
    if requested is None:
        default = now + timedelta(seconds=settings.default_life_seconds)
        return default if principal.expires_at is None else min(default, principal.expires_at)
    check_expiry(requested, now)
    if requested > now + timedelta(seconds=settings.max_life_seconds):
        raise errors.invalid(f"expires_at must be within the next {settings.max_life_seconds} seconds.")
    check_life(principal, requested)
    return requested

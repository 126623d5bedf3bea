"""Rules for keys. A key cannot create a key with more permissions or a longer life than its own."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from quarterdeck.api_keys.model import RotatedKey
from quarterdeck.core import errors
from quarterdeck.core.actors import Permission, Principal

# PostgreSQL stores later times, but datetime cannot represent them.
_LATEST = datetime.max.replace(tzinfo=UTC)


def ordered(permissions: Iterable[Permission]) -> list[Permission]:
    """Without duplicates, in the order of the enum: keys with equal permissions show equal lists."""
    held = set(permissions)
    return [permission for permission in Permission if permission in held]


def check_expiry(expires_at: datetime | None, now: datetime) -> None:
    if expires_at is not None and expires_at <= now:
        raise errors.invalid("expires_at is in the past.")
    if expires_at is not None and expires_at > _LATEST:
        raise errors.invalid("expires_at must be before the year 10000 (UTC).")


def check_maximum(expires_at: datetime | None, now: datetime, max_days: int | None) -> None:
    """Refused, not shortened: the caller should not believe that the key lives longer than it does."""
    if max_days is not None and (expires_at is None or expires_at > now + timedelta(days=max_days)):
        raise errors.invalid(f"Keys in this workspace must expire within {max_days} days. Set expires_at.")


def rotated_expiry(expires_at: datetime | None, now: datetime, max_days: int | None) -> datetime | None:
    """The expiry of the old key, limited by the workspace's current maximum."""
    if max_days is None:
        return expires_at
    latest = now + timedelta(days=max_days)
    return min(expires_at or latest, latest)


def check_rotatable(key: RotatedKey) -> None:
    if key.is_replaced:
        raise errors.conflict("This key was already rotated. Rotate its replacement.")
    if key.has_ended:
        raise errors.conflict("This key is revoked or has expired. Create a new key.")


def check_within(principal: Principal, permissions: Iterable[Permission], expires_at: datetime | None) -> None:
    beyond = [permission for permission in ordered(permissions) if permission not in principal.permissions]
    if beyond:
        raise errors.exceeds_caller(f"A key cannot grant permissions that it does not have: {', '.join(beyond)}.")
    check_life(principal, expires_at)


def check_life(principal: Principal, expires_at: datetime | None) -> None:
    limit = principal.expires_at
    if limit is not None and (expires_at is None or expires_at > limit):
        raise errors.exceeds_caller(
            f"The lifetime must not exceed that of the calling key: expires_at must be {limit.isoformat()} or earlier."
        )

"""Who sees a session, and how long its tokens live."""

from datetime import datetime, timedelta
from uuid import UUID

from quarterdeck import errors
from quarterdeck.access.model import Principal
from quarterdeck.api_keys.rules import check_expiry, check_life
from quarterdeck.sessions.model import SessionSkill
from quarterdeck.settings import TokenSettings


def check_distinct(skills: list[SessionSkill]) -> None:
    if len({one.skill_id for one in skills}) < len(skills):
        raise errors.invalid("A skill is named twice.")


def sees_session(
    principal: Principal, session_id: UUID, workspace_id: UUID | None, named: UUID | None, *, own_token: bool
) -> bool:
    """`workspace_id` is the session's, None when there is no such session; `named` is the caller's Service-Workspace;
    `own_token` says whether the session's own tokens do for this operation."""
    if principal.session_id is not None and not (own_token and principal.session_id == session_id):
        return False
    return workspace_id == principal.workspace_id and named in (None, workspace_id)


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

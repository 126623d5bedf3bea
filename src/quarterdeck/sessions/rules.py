"""Who sees a session, and what a change makes of it."""

from datetime import datetime
from uuid import UUID

import msgspec
from msgspec import UNSET

from quarterdeck import errors
from quarterdeck.access.model import Principal
from quarterdeck.sessions.model import ChangeSessionBody, SessionBody, SessionSkill


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


def changed(session: SessionBody, change: ChangeSessionBody, now: datetime) -> SessionBody:
    """The session as it is wanted, with the next revision if that is any different."""
    fields = {name: value for name, value in msgspec.structs.asdict(change).items() if value is not UNSET}
    archived = fields.pop("archived", session.archived_at is not None)
    # Archiving what is archived keeps the time of the first.
    archived_at = (session.archived_at or now) if archived else None
    wanted = msgspec.structs.replace(session, **fields, archived_at=archived_at)
    if wanted == session:
        return session
    return msgspec.structs.replace(wanted, revision=session.revision + 1)


def changed_fields(before: SessionBody, after: SessionBody) -> list[str]:
    """For the audit log: what was changed, not what it says."""
    names = ("title", "model", "instructions", "skills", "archived_at")
    return [name for name in names if getattr(before, name) != getattr(after, name)]

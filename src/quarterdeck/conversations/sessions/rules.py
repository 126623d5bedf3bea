"""Who sees a session, and what a change makes of it."""

from datetime import datetime

import msgspec
from msgspec import UNSET

from quarterdeck.conversations.sessions.model import ChangeSessionBody, SessionBody, SessionSkill
from quarterdeck.core import errors


def check_distinct(skills: list[SessionSkill]) -> None:
    if len({one.skill_id for one in skills}) < len(skills):
        raise errors.invalid("A skill is named twice.")


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

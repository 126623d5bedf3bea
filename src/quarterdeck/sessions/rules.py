"""Rules for changes to sessions."""

import re
from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from quarterdeck.agents.configuration import ConfigurationField, Limit, SetLimit
from quarterdeck.core.text_types import MAX_LINE_LENGTH
from quarterdeck.sessions.model import ChangeSessionBody, SessionBody

_FORK_TITLE = re.compile(r"(.*) \(fork(?: ([1-9][0-9]{0,8}))?\)")


def fork_title(title: str | None) -> str | None:
    """`Plan` becomes `Plan (fork)`, then `Plan (fork 2)`. An untitled session stays untitled."""
    if title is None:
        return None
    suffix = " (fork)"
    if found := _FORK_TITLE.fullmatch(title):
        title, suffix = found[1], f" (fork {int(found[2] or 1) + 1})"
    longest = MAX_LINE_LENGTH - len(suffix)
    return (title if len(title) <= longest else f"{title[: longest - 1]}…") + suffix


def changed(session: SessionBody, change: ChangeSessionBody, now: datetime) -> SessionBody:
    """The session with its own fields changed. Its agent and its revision stay as they are."""
    fields = _given(change)
    for name in ("agent", "inherit"):
        fields.pop(name, None)
    if change.settings is not UNSET:
        fields["settings"] = msgspec.structs.replace(session.settings, **_given(change.settings))
    if change.limits is not UNSET:
        scopes = {
            scope: changed_limit(getattr(session.limits, scope), one) for scope, one in _given(change.limits).items()
        }
        fields["limits"] = msgspec.structs.replace(session.limits, **scopes)
    archived = fields.pop("archived", session.archived_at is not None)
    # Archiving again keeps the time of the first archiving.
    archived_at = (session.archived_at or now) if archived else None
    return msgspec.structs.replace(session, **fields, archived_at=archived_at)


def changed_limit(limit: Limit, change: SetLimit) -> Limit:
    return msgspec.structs.replace(limit, **_given(change))


def sets_limits(change: ChangeSessionBody) -> bool:
    """Also if it names other limits only: the session no longer has the limits of the agent's version that its active
    run began with."""
    return bool(change.limits) or ConfigurationField.LIMITS in (change.inherit or ())


def replaced_run_limits(change: ChangeSessionBody) -> set[str]:
    """The limits of a run that the change sets. What a person raised for the active run no longer counts."""
    if ConfigurationField.LIMITS in (change.inherit or ()):
        return set(Limit.__struct_fields__)
    return set(_given(change.limits.run)) if change.limits and change.limits.run else set()


def changed_fields(before: SessionBody, after: SessionBody) -> list[str]:
    """The names of changed fields, for the audit log, which must not hold their content."""
    names = ("title", *ConfigurationField, "agent", "overrides", "archived_at")
    return [name for name in names if getattr(before, name) != getattr(after, name)]


def _given(change: Struct) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(change).items() if value is not UNSET}

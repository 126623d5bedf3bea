"""Decisions about skills."""

from collections.abc import Callable
from typing import Any

from msgspec import UNSET

from quarterdeck import errors
from quarterdeck.access.model import Permission
from quarterdeck.errors import ServiceError
from quarterdeck.skills.model import ChangeSkillBody, PushVerdict, SkillState

_PUSH_REFUSALS: dict[PushVerdict, Callable[[], ServiceError]] = {
    PushVerdict.UNAUTHORIZED: errors.unauthorized,
    PushVerdict.FORBIDDEN: lambda: errors.forbidden(Permission.SKILL_MANAGE),
    PushVerdict.NOT_FOUND: lambda: errors.not_found("skill"),
    PushVerdict.CONFLICT: errors.key_reused,
    PushVerdict.CHANGED: errors.precondition_failed,
    PushVerdict.ARCHIVED: lambda: errors.conflict(
        "This skill is archived and takes no further versions. Bring it back first."
    ),
}


def changed(state: SkillState, wanted: ChangeSkillBody) -> dict[str, Any]:
    """What is to be otherwise than it is."""
    asked = {
        "name": (state.name, wanted.name),
        "default_version": (state.default_version, wanted.default_version),
        "archived": (state.archived, wanted.archived),
    }
    return {name: new for name, (old, new) in asked.items() if new is not UNSET and new != old}


def check_default_version(state: SkillState) -> None:
    # Versions count from 1 without gaps.
    if state.default_version is not None and state.default_version > state.latest_version:
        raise errors.invalid("default_version is not a version of this skill.")


def check_pushed(verdict: PushVerdict) -> None:
    if verdict in _PUSH_REFUSALS:
        raise _PUSH_REFUSALS[verdict]()

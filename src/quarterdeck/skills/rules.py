"""Rules of skills."""

from typing import Any

from msgspec import UNSET

from quarterdeck.core import errors
from quarterdeck.skills.model import ChangeSkillBody, SkillState

ARCHIVED = "This skill is archived. Unarchive it to push versions."
IN_USE = (
    "This skill is used by a session or a version of an agent. Archive it instead, or remove it from its sessions. "
    "Versions of agents keep their skills."
)
NAME_TAKEN = "A skill with this name already exists."


def changed(state: SkillState, wanted: ChangeSkillBody) -> dict[str, Any]:
    """The fields whose values change."""
    asked = {
        "name": (state.name, wanted.name),
        "default_version": (state.default_version, wanted.default_version),
        "archived": (state.archived, wanted.archived),
    }
    return {name: new for name, (old, new) in asked.items() if new is not UNSET and new != old}


def needs_free_name(state: SkillState, new: SkillState) -> bool:
    """Names are unique among active skills. An archived skill may share its name and needs another to come back."""
    return not new.archived and (state.archived or new.name != state.name)


def check_default_version(state: SkillState) -> None:
    if state.default_version is not None and not _has_version(state.latest_version, state.default_version):
        raise errors.invalid("default_version is not a version of this skill.")


def check_takes_versions(state: SkillState) -> None:
    if state.archived:
        raise errors.conflict(ARCHIVED)


def check_unused(*, in_use: bool) -> None:
    if in_use:
        raise errors.conflict(IN_USE)


def check_usable(latest_version: int, version: int | None, *, is_archived: bool) -> None:
    """`version` is what a session pins; None follows the latest, which must exist."""
    if latest_version == 0:
        raise errors.invalid("This skill has no versions yet. Push one before a session uses it.")
    if version is not None and not _has_version(latest_version, version):
        raise errors.invalid("This skill has no such version.")
    if is_archived:
        raise errors.invalid("This skill is archived. New sessions cannot use it.")


def _has_version(latest_version: int, version: int) -> bool:
    # Versions count from 1 without gaps.
    return 1 <= version <= latest_version

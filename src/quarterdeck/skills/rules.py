"""Rules of skills."""

from typing import Any

from msgspec import UNSET

from quarterdeck.core import errors
from quarterdeck.skills.model import ChangeSkillBody, SkillState


def changed(state: SkillState, wanted: ChangeSkillBody) -> dict[str, Any]:
    """The fields whose values change."""
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


def check_takes_versions(state: SkillState) -> None:
    if state.archived:
        raise errors.conflict("This skill is archived and takes no further versions. Bring it back first.")

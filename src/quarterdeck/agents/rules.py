"""Rules of agents."""

from typing import Any

from msgspec import UNSET

from quarterdeck.agents.model import AgentState, ChangeAgentBody
from quarterdeck.core import errors

ARCHIVED = "This agent is archived. Unarchive it to push versions."
NAME_TAKEN = "An agent with this name already exists."


def changed(state: AgentState, wanted: ChangeAgentBody) -> dict[str, Any]:
    """The fields whose values change."""
    asked = {
        "name": (state.name, wanted.name),
        "default_version": (state.default_version, wanted.default_version),
        "archived": (state.archived, wanted.archived),
    }
    return {name: new for name, (old, new) in asked.items() if new is not UNSET and new != old}


def needs_free_name(state: AgentState, new: AgentState) -> bool:
    """Names are unique among active agents. An archived agent may share its name and needs another to come back."""
    return not new.archived and (state.archived or new.name != state.name)


def check_default_version(state: AgentState) -> None:
    if state.default_version is not None and not _has_version(state.latest_version, state.default_version):
        raise errors.invalid("default_version is not a version of this agent.")


def check_takes_versions(state: AgentState) -> None:
    if state.archived:
        raise errors.conflict(ARCHIVED)


def check_usable(latest_version: int, version: int | None, *, is_archived: bool) -> None:
    """`version` is what a session pins; None follows the default or the latest, which must exist."""
    if latest_version == 0:
        raise errors.invalid("This agent has no versions yet. Push one before a session uses it.")
    if version is not None and not _has_version(latest_version, version):
        raise errors.invalid("This agent has no such version.")
    if is_archived:
        raise errors.invalid("This agent is archived. New sessions cannot use it.")


def _has_version(latest_version: int, version: int) -> bool:
    # Versions count from 1 without gaps.
    return 1 <= version <= latest_version

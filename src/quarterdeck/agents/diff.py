"""The differences between two versions of an agent."""

from typing import Any

import msgspec

from quarterdeck.agents.configuration import ConfigurationField
from quarterdeck.agents.model import AgentDiffBody, AgentVersionBody, FieldDiff
from quarterdeck.skills.diff import unified_diff

# Longest sum of both texts. Comparing more would hold the interpreter lock for too long.
_MAX_CHARACTERS = 512 * 1024


def compare(base: AgentVersionBody, head: AgentVersionBody) -> AgentDiffBody:
    fields = []
    for field in ConfigurationField:
        before, after = (msgspec.to_builtins(getattr(version, field)) for version in (base, head))
        if before != after:
            fields.append(FieldDiff(field, before, after, _diff(field, before, after)))
    return AgentDiffBody(base.version, head.version, fields)


def _diff(field: ConfigurationField, before: Any, after: Any) -> str | None:
    if not before and not after:
        return None
    if isinstance(before, dict | list) or isinstance(after, dict | list):
        before, after = _json(before), _json(after)
    elif field is not ConfigurationField.INSTRUCTIONS:
        return None
    if len(before or "") + len(after or "") > _MAX_CHARACTERS:
        return None
    return unified_diff(field, before, after)


def _json(value: Any) -> str | None:
    """Sorted, so that the order of names makes no difference."""
    if value is None:
        return None
    return msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=2).decode() + "\n"

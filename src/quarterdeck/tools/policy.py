"""Which tools a session allows, asks about or denies."""

from collections.abc import Mapping

from quarterdeck.models.model import ToolRule
from quarterdeck.tools.tool import Effect, Tool


def rule_of(tool: Tool, policy: Mapping[str, ToolRule], sandbox_rule: ToolRule = ToolRule.ALLOW) -> ToolRule:
    """`sandbox_rule`: of tools in the sandbox that the policy does not name. A definition that has changed is not what
    was allowed."""
    rule = _stated_rule(tool, policy, sandbox_rule)
    return ToolRule.ASK if tool.is_changed and rule is ToolRule.ALLOW else rule


def _stated_rule(tool: Tool, policy: Mapping[str, ToolRule], sandbox_rule: ToolRule) -> ToolRule:
    """An exact name goes before a prefix, and the longest prefix before shorter ones; `*` is the shortest."""
    if tool.name in policy:
        return policy[tool.name]
    prefixes = [entry for entry in policy if entry.endswith("*") and tool.name.startswith(entry[:-1])]
    if prefixes:
        return policy[max(prefixes, key=len)]
    if tool.is_sandboxed:
        return sandbox_rule
    # A tool of the caller: the caller decides when it carries out the call.
    is_clients = tool.carry_out is None
    return ToolRule.ALLOW if is_clients or tool.effect is Effect.READS else ToolRule.ASK

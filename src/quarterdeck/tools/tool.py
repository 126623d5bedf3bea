"""Tools: what a model may call. A tool is one file that returns a `Tool`; worker/agent.py lists them.

Every call gets a result of bounded size. Errors of the model become results, not exceptions.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct

from quarterdeck.core.logging import log
from quarterdeck.sandbox.manifest import FileChanges
from quarterdeck.sandbox.model import Refusal, SandboxUnavailable
from quarterdeck.sandbox.run_folders import RunSandbox
from quarterdeck.tools.model import ToolRule, ToolSpec


class Effect(StrEnum):
    # Changes nothing. May be repeated at any time.
    READS = "reads"
    # Changes something of ours.
    WRITES = "writes"
    # Changes something elsewhere, or cannot be known to change nothing.
    EXTERNAL = "external"


def _ignore(text: str) -> None:
    pass


class CallContext(Struct, frozen=True):
    # The same for every try of one call, and unique to the call.
    key: str
    # Called with output as it comes, for display only.
    on_output: Callable[[str], None] = _ignore


class NewImage(Struct, frozen=True):
    data: bytes
    media_type: str


class Output(Struct, frozen=True):
    """The result of a call, with the files that it changed: both are stored in one transaction, or neither is."""

    text: str
    changes: FileChanges | None = None
    images: tuple[NewImage, ...] = ()
    is_error: bool = False


def failed_output(reason: object) -> Output:
    return Output(f"Error: {reason}", is_error=True)


# Raises Refusal if the call had no effect. After any other exception the outcome counts as unknown.
CarryOut = Callable[[dict[str, Any], CallContext], Awaitable[str | Output]]


class Tool(Struct, frozen=True, kw_only=True):
    spec: ToolSpec
    effect: Effect
    # None: the caller of the API carries it out.
    carry_out: CarryOut | None
    # Whether two calls with the same key have one effect. True of tools whose only effects are changed files: those of
    # a call without a stored result are undone.
    honours_key: bool = False
    # The policy's default rule for these is a setting. All of a run work in one folder.
    is_sandboxed: bool = False
    # Hash of an MCP tool's definition, in hex. What a person allowed for the session holds for this definition only.
    definition_sha256: str | None = None
    # The definition is not a known one, so the policy's `allow` does not hold for it.
    is_changed: bool = False
    # The owner of the tool, for the person who is asked. Empty: it is built in, or a tool of the caller.
    origin: str = ""

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def is_repeatable(self) -> bool:
        return self.effect is Effect.READS or self.honours_key


def client_tool(spec: ToolSpec) -> Tool:
    return Tool(spec=spec, effect=Effect.EXTERNAL, carry_out=None)


class Toolbox:
    """The tools of one run. Of two tools with one name, the first is offered."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            self._tools.setdefault(tool.name, tool)
        self.specs = [tool.spec for tool in self._tools.values()]

    def find(self, name: str) -> Tool | None:
        return self._tools.get(name)


def text_argument(arguments: dict[str, Any], name: str, default: str | None = None) -> str:
    value = arguments.get(name, default)
    if value is None and default is not None:
        return default
    if not isinstance(value, str):
        raise Refusal(f'the argument "{name}" must be a text.')
    return value


def parameters(properties: dict[str, Any], optional: Iterable[str] = ()) -> dict[str, Any]:
    """The JSON Schema of the arguments of a tool."""
    required = [name for name in properties if name not in set(optional)]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


# More than the notice of `bounded_text`.
_NOTICE_BYTES = 100


def bounded_result(text: str, max_bytes: int) -> str:
    """A text that its tool has cut is not cut again because of the notice."""
    data = text.encode()
    return text if len(data) <= max_bytes + _NOTICE_BYTES else bounded_text(data, len(data), max_bytes)


def bounded_text(data: bytes, size: int, max_bytes: int) -> str:
    """At most `max_bytes` of a text, with a notice if it was cut. `data` is the beginning of `size` bytes. Raises
    UnicodeDecodeError if it is no text."""
    kept = data[:max_bytes]
    if len(kept) == size:
        return kept.decode()
    return f"{_decode_start(kept)}\n[Cut here: these are the first {len(kept)} of {size} bytes.]"


def _decode_start(data: bytes) -> str:
    """The cut may have split a character, so up to three bytes at the end are dropped."""
    for missing in range(4):
        try:
            return data[: len(data) - missing].decode()
        except UnicodeDecodeError:
            continue
    return data.decode()


# Rules for tools: whether a session allows, asks about or denies them.


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


# Common parts of the tools of the sandbox.

Work = Callable[[RunSandbox, dict[str, Any], CallContext], Awaitable[str | Output]]

_NO_SANDBOX = "this worker has no sandbox, so the files of the session cannot be used at the moment."


def sandboxed_tool(spec: ToolSpec, effect: Effect, sandbox: RunSandbox | None, work: Work) -> Tool:
    """A tool whose only effects are changed files. So it may be repeated: what is not stored is undone. `sandbox` is
    None if the worker has none."""

    async def carry_out(arguments: dict[str, Any], context: CallContext) -> str | Output:
        if sandbox is None:
            raise Refusal(_NO_SANDBOX)
        try:
            return await work(sandbox, arguments, context)
        except SandboxUnavailable as fault:
            log.warning("the sandbox failed", exc_info=fault)
            raise Refusal("the sandbox does not work at the moment.") from fault

    return Tool(
        spec=spec,
        effect=effect,
        carry_out=carry_out,
        honours_key=effect is not Effect.EXTERNAL,
        is_sandboxed=True,
    )


def number_argument(arguments: dict[str, Any], name: str, default: float | None = None) -> float | None:
    """A positive number."""
    value = arguments.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 2**53:
        raise Refusal(f'the argument "{name}" must be a positive number.')
    return value


def count_argument(arguments: dict[str, Any], name: str) -> int | None:
    value = number_argument(arguments, name)
    if value is not None and value != int(value):
        raise Refusal(f'the argument "{name}" must be a whole number.')
    return None if value is None else int(value)

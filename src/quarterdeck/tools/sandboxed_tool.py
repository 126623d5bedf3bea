"""What the tools of a workspace have in common."""

from collections.abc import Awaitable, Callable
from typing import Any

from quarterdeck.core.logging import log
from quarterdeck.sandbox.model import Refusal, SandboxUnavailable
from quarterdeck.sandbox.run_folders import Place
from quarterdeck.tools.model import ToolSpec
from quarterdeck.tools.tool import CallContext, Effect, Output, Tool

Work = Callable[[Place, dict[str, Any], CallContext], Awaitable[str | Output]]

_NO_SANDBOX = "this worker has no sandbox, so the files of the session cannot be used at the moment."


def sandboxed_tool(spec: ToolSpec, effect: Effect, place: Place | None, work: Work) -> Tool:
    """A tool whose only effects are changed files. So it may be repeated: what is not stored is undone. `place` is None
    if the worker has no sandbox."""

    async def carry_out(arguments: dict[str, Any], context: CallContext) -> str | Output:
        if place is None:
            raise Refusal(_NO_SANDBOX)
        try:
            return await work(place, arguments, context)
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

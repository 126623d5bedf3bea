"""The tool `current_time`."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from quarterdeck.tools.model import ToolSpec
from quarterdeck.tools.tool import CallContext, Effect, Tool, parameters

CURRENT_TIME = "current_time"


def current_time(now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Tool:
    async def tell(arguments: dict[str, Any], context: CallContext) -> str:
        return now().astimezone(UTC).strftime("%A %Y-%m-%d %H:%M:%S UTC")

    spec = ToolSpec(CURRENT_TIME, "The current date and time in UTC.", parameters({}))
    return Tool(spec=spec, effect=Effect.READS, carry_out=tell)

"""The tool `add_note`: stores a note in the session's log.

It stands for tools with effects outside of the database: two calls store two notes, and the note is not stored in the
transaction of its result.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from quarterdeck.agents.model import ToolSpec
from quarterdeck.agents.tools import CallContext, Effect, Refusal, Tool, parameters, text_argument

ADD_NOTE = "add_note"
_MAX_SECONDS = 60

# (text, key of the call)
StoreNote = Callable[[str, str], Awaitable[None]]


def add_note(store: StoreNote) -> Tool:
    async def add(arguments: dict[str, Any], context: CallContext) -> str:
        text = text_argument(arguments, "text")
        await asyncio.sleep(_seconds(arguments))
        await store(text, context.key)
        return "The note is stored."

    seconds = {
        "type": "number",
        "minimum": 0,
        "maximum": _MAX_SECONDS,
        "description": "How long to wait before the note is stored. For tests.",
    }
    properties = {"text": {"type": "string", "description": "The note."}, "seconds": seconds}
    spec = ToolSpec(ADD_NOTE, "Store a note in the log of this session.", parameters(properties, ["seconds"]))
    return Tool(spec=spec, effect=Effect.WRITES, carry_out=add)


def _seconds(arguments: dict[str, Any]) -> float:
    value = arguments.get("seconds", 0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MAX_SECONDS:
        raise Refusal(f'the argument "seconds" must be a number from 0 to {_MAX_SECONDS}.')
    return value

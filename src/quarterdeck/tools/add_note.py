"""The tool `add_note` of the demo model: stores a note in the session's log.

It stands for tools with effects outside of the database: two calls store two notes, and the note is not stored in the
transaction of its result.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from quarterdeck.tools.model import ToolSpec
from quarterdeck.tools.tool import CallContext, Effect, Tool, parameters, text_argument

ADD_NOTE = "add_note"

# (text, key of the call)
StoreNote = Callable[[str, str], Awaitable[None]]


def add_note(store: StoreNote) -> Tool:
    async def add(arguments: dict[str, Any], context: CallContext) -> str:
        await store(text_argument(arguments, "text"), context.key)
        return "The note is stored."

    properties = {"text": {"type": "string", "description": "The note."}}
    spec = ToolSpec(ADD_NOTE, "Store a note in the log of this session.", parameters(properties))
    return Tool(spec=spec, effect=Effect.WRITES, carry_out=add)

"""Reads the part of a session's log that its model gets: db/functions/conversation.sql."""

from uuid import UUID

from quarterdeck.conversations.events.model import EventType
from quarterdeck.conversations.runs.model import ENTRY_BYTES, Entry
from quarterdeck.db.database import Connection

# Far more than the turns that fit into a context. It bounds the time to read a log that holds other events only.
_CONVERSATION_EVENTS = 50_000
# The type of a last row with the number of turns that the model shall not see: see read_conversation().
_LEFT_OUT = "left_out"
_CONVERSATION = "SELECT run_id, type, data, record, content FROM read_conversation(%s, %s, %s, %s)"
_TURN_TYPES = (EventType.INPUT_CONSUMED, EventType.MESSAGE, EventType.TOOL_RESULT)
_TURNS = """
SELECT count(*) FROM (
    SELECT type FROM session_events WHERE session_id = %s ORDER BY id DESC LIMIT %s
) AS newest
WHERE type IN ('input.consumed', 'message', 'tool.result')
"""


async def conversation(connection: Connection, session_id: UUID, budget_bytes: int) -> tuple[list[Entry], int]:
    """The newest entries, oldest first, until the budget is used up, and the number of older turns. Neither has turns
    that the model shall not see, nor those that a summary stands for."""
    values = (session_id, budget_bytes, ENTRY_BYTES, _CONVERSATION_EVENTS)
    rows = await (await connection.execute(_CONVERSATION, values)).fetchall()
    row = await (await connection.execute(_TURNS, (session_id, _CONVERSATION_EVENTS))).fetchone()
    assert row is not None
    hidden = rows.pop()[2] if rows and rows[-1][1] == _LEFT_OUT else 0
    entries = [Entry(*row) for row in reversed(rows)]
    summary = next((entry for entry in entries if entry.type == EventType.CONTEXT_COMPACTED), None)
    if summary is not None and summary.text is None:
        return entries, 0
    summarised = 0 if summary is None else summary.data["dropped_turns"]
    return entries, max(0, row[0] - summarised - hidden - sum(entry.type in _TURN_TYPES for entry in entries))

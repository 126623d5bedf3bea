"""Reads the part of a session's log that its model gets: db/functions/conversation.sql."""

from uuid import UUID

from quarterdeck.db.database import Connection
from quarterdeck.events.model import EventType
from quarterdeck.runs.model import ENTRY_BYTES, Entry

# Far more than the turns that fit into a context. It bounds the time to read a log that holds other events only.
_CONVERSATION_EVENTS = 50_000
# The type of a last row with the number of turns that the model shall not see: see read_conversation().
_LEFT_OUT = "left_out"
# Every row has the number of all turns. If there is no entry, it is the only column that is not NULL.
_CONVERSATION = """
SELECT turns.count, entry.run_id, entry.type, entry.data, entry.record, entry.content
FROM (
    SELECT count(*) FROM (
        SELECT type FROM session_events WHERE session_id = %s ORDER BY id DESC LIMIT %s
    ) AS newest
    WHERE type IN ('input.consumed', 'message', 'tool.result')
) AS turns
LEFT JOIN read_conversation(%s, %s, %s, %s) AS entry ON true
"""
_TURN_TYPES = (EventType.INPUT_CONSUMED, EventType.MESSAGE, EventType.TOOL_RESULT)


async def conversation(connection: Connection, session_id: UUID, budget_bytes: int) -> tuple[list[Entry], int]:
    """The newest entries, oldest first, until the budget is used up, and the number of older turns. Neither has turns
    that the model shall not see, nor those that a summary stands for."""
    values = (session_id, _CONVERSATION_EVENTS, session_id, budget_bytes, ENTRY_BYTES, _CONVERSATION_EVENTS)
    rows = await (await connection.execute(_CONVERSATION, values)).fetchall()
    turns = rows[0][0]
    entries = [Entry(*row) for _, *row in reversed(rows) if row[1] is not None]
    hidden = entries.pop(0).data if entries and entries[0].type == _LEFT_OUT else 0
    summary = next((entry for entry in entries if entry.type == EventType.CONTEXT_COMPACTED), None)
    if summary is not None and summary.text is None:
        return entries, 0
    summarised = 0 if summary is None else summary.data["dropped_turns"]
    return entries, max(0, turns - summarised - hidden - sum(entry.type in _TURN_TYPES for entry in entries))

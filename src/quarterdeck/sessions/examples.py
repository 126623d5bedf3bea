"""A session, made up for the document."""

from uuid import UUID

from quarterdeck.sessions.model import CreatedSessionTokenBody, CreateSessionBody, CreateSessionTokenBody, SessionBody
from quarterdeck.story import EVENING, MORNING, SESSION, WORKSPACE

# Cut short on purpose: a whole one would look real to people and to secret scanners.
_TOKEN = "qds_live_h2Lq81Zc…"

EXAMPLES = (
    CreateSessionBody("Incident review"),
    SessionBody(SESSION, WORKSPACE, "Incident review", None, None, [], MORNING),
    CreateSessionTokenBody(),
    CreatedSessionTokenBody(
        id=UUID("0192f0d6-41b2-7c95-a8e3-7d0f5b2c9a07"),
        session_id=SESSION,
        prefix="qds_live_h2Lq81Zc",
        created_at=MORNING,
        expires_at=EVENING,
        token=_TOKEN,
    ),
)

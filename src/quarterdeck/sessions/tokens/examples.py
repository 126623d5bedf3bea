"""Examples of session tokens for the OpenAPI document."""

from uuid import UUID

from msgspec.structs import asdict, replace

from quarterdeck.core.example_ids import ADA, API_KEY, EVENING, MORNING, SESSION
from quarterdeck.sessions.tokens.model import (
    CreatedSessionTokenBody,
    CreateSessionTokenBody,
    SessionTokenBody,
    SessionTokenPage,
)

# Truncated: a complete secret would trigger secret scanners.
_SECRET = "qds_live_h2Lq81Zc…"

_TOKEN = SessionTokenBody(
    id=UUID("0192f0d6-41b2-7c95-a8e3-7d0f5b2c9a07"),
    session_id=SESSION,
    prefix="qds_live_h2Lq81Zc",
    label="support widget",
    may_resolve=False,
    api_key_id=API_KEY,
    created_by=ADA,
    created_at=MORNING,
    expires_at=EVENING,
    revoked_at=None,
)

EXAMPLES = (
    CreateSessionTokenBody(label="support widget"),
    CreatedSessionTokenBody(**asdict(_TOKEN), token=_SECRET),
    replace(_TOKEN, revoked_at=EVENING),
    SessionTokenPage([_TOKEN], None),
)

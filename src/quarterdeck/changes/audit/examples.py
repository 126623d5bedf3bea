"""Examples of audit events for the OpenAPI document."""

from uuid import UUID

from quarterdeck.changes.audit.model import AuditEventBody, AuditEventPage, ObjectType
from quarterdeck.core.example_ids import ADA, API_KEY, EVENING, SESSION

_EVENT = AuditEventBody(
    id=UUID("0192f0d4-1f30-7c55-b2e8-4a9d6c1f7e07"),
    created_at=EVENING,
    action="create_session_token",
    object_type=ObjectType.SESSION_TOKEN,
    object_id=UUID("0192f0d4-1f2b-7d90-8c46-7e3b5a0d9f08"),
    object_name="qds_live_8hR2mVc5",
    actor=ADA,
    api_key_id=API_KEY,
    session_token_id=None,
    address="203.0.113.7",
    request_id="0192f0d4-1f21-7a6e-9b02-c58d1e4f3a09",
    detail={"session_id": str(SESSION), "prefix": "qds_live_8hR2mVc5"},
)

EXAMPLES = (AuditEventPage([_EVENT], None),)

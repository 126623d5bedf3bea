"""Examples of API keys for the OpenAPI document."""

from msgspec.structs import asdict, replace

from quarterdeck.api_keys.model import ApiKeyBody, ApiKeyPage, CreateApiKeyBody, CreatedApiKeyBody, RotateApiKeyBody
from quarterdeck.core.actors import Permission
from quarterdeck.core.example_ids import ADA, API_KEY, EVENING, MORNING

# Truncated: a complete secret would trigger secret scanners.
_SECRET = "qd_live_4fT9wKx2…"

_KEY = ApiKeyBody(
    id=API_KEY,
    label="build server",
    prefix="qd_live_4fT9wKx2",
    permissions=[Permission.WORKSPACE_READ, Permission.SESSION_MANAGE],
    created_at=MORNING,
    created_by=ADA,
    expires_at=None,
    last_used_at=None,
    revoked_at=None,
)

EXAMPLES = (
    # Without expires_at: a fixed date would become invalid with time.
    CreateApiKeyBody("build server", [Permission.WORKSPACE_READ, Permission.SESSION_MANAGE]),
    RotateApiKeyBody(),
    CreatedApiKeyBody(**asdict(_KEY), secret=_SECRET),
    replace(_KEY, last_used_at=EVENING, revoked_at=EVENING),
    ApiKeyPage([replace(_KEY, last_used_at=EVENING)], None),
)

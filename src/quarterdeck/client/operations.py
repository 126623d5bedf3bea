"""The operations of the API. Written by codegen/client.py (`make client`) from the route table."""

from quarterdeck.client.requests import Operation

SUBMIT_INPUT = Operation("submit_input", "POST", "/v1/sessions/{session_id}/events", idempotent=True)
LIST_SESSION_EVENTS = Operation("list_session_events", "GET", "/v1/sessions/{session_id}/events")
LIST_SESSIONS = Operation("list_sessions", "GET", "/v1/sessions")
CREATE_SESSION = Operation("create_session", "POST", "/v1/sessions", idempotent=True)
GET_SESSION = Operation("get_session", "GET", "/v1/sessions/{session_id}")
CHANGE_SESSION = Operation("change_session", "PATCH", "/v1/sessions/{session_id}", idempotent=True)
DELETE_SESSION = Operation("delete_session", "DELETE", "/v1/sessions/{session_id}")
LIST_SESSION_TOKENS = Operation("list_session_tokens", "GET", "/v1/sessions/{session_id}/tokens")
CREATE_SESSION_TOKEN = Operation(
    "create_session_token", "POST", "/v1/sessions/{session_id}/tokens", idempotent=True, shown_once="token"
)
REVOKE_SESSION_TOKEN = Operation(
    "revoke_session_token", "POST", "/v1/sessions/{session_id}/tokens/{session_token_id}/revoke", idempotent=True
)
LIST_SESSION_RUNS = Operation("list_session_runs", "GET", "/v1/sessions/{session_id}/runs")
GET_RUN = Operation("get_run", "GET", "/v1/runs/{run_id}")
CANCEL_RUN = Operation("cancel_run", "POST", "/v1/runs/{run_id}/cancel", idempotent=True)
WHOAMI = Operation("whoami", "GET", "/v1/whoami")
LIST_API_KEYS = Operation("list_api_keys", "GET", "/v1/api-keys")
CREATE_API_KEY = Operation("create_api_key", "POST", "/v1/api-keys", idempotent=True, shown_once="secret")
GET_API_KEY = Operation("get_api_key", "GET", "/v1/api-keys/{api_key_id}")
REVOKE_API_KEY = Operation("revoke_api_key", "POST", "/v1/api-keys/{api_key_id}/revoke", idempotent=True)
ROTATE_API_KEY = Operation(
    "rotate_api_key", "POST", "/v1/api-keys/{api_key_id}/rotate", idempotent=True, shown_once="secret"
)
CREATE_SKILL = Operation("create_skill", "POST", "/v1/skills", idempotent=True)
LIST_SKILLS = Operation("list_skills", "GET", "/v1/skills")
GET_SKILL = Operation("get_skill", "GET", "/v1/skills/{skill_id}")
CHANGE_SKILL = Operation("change_skill", "PATCH", "/v1/skills/{skill_id}", idempotent=True)
PUSH_SKILL_VERSION = Operation("push_skill_version", "POST", "/v1/skills/{skill_id}/versions", idempotent=True)
LIST_SKILL_VERSIONS = Operation("list_skill_versions", "GET", "/v1/skills/{skill_id}/versions")
GET_SKILL_VERSION = Operation("get_skill_version", "GET", "/v1/skills/{skill_id}/versions/{version}")
DOWNLOAD_SKILL_BUNDLE = Operation("download_skill_bundle", "GET", "/v1/skills/{skill_id}/versions/{version}/bundle")
DOWNLOAD_SKILL_FILE = Operation("download_skill_file", "GET", "/v1/skills/{skill_id}/versions/{version}/file")
DIFF_SKILL_VERSIONS = Operation("diff_skill_versions", "GET", "/v1/skills/{skill_id}/diff")
GET_WORKSPACE = Operation("get_workspace", "GET", "/v1/workspace")
LIST_MEMBERS = Operation("list_members", "GET", "/v1/members")
GET_ACTIVITY = Operation("get_activity", "GET", "/v1/activity")
LIST_AUDIT_EVENTS = Operation("list_audit_events", "GET", "/v1/audit-events")
LIST_WEBHOOKS = Operation("list_webhooks", "GET", "/v1/webhooks")
CREATE_WEBHOOK = Operation("create_webhook", "POST", "/v1/webhooks", idempotent=True, shown_once="secret")
GET_WEBHOOK = Operation("get_webhook", "GET", "/v1/webhooks/{webhook_id}")
CHANGE_WEBHOOK = Operation("change_webhook", "PATCH", "/v1/webhooks/{webhook_id}", idempotent=True)
DELETE_WEBHOOK = Operation("delete_webhook", "DELETE", "/v1/webhooks/{webhook_id}")
ROTATE_WEBHOOK_SECRET = Operation(
    "rotate_webhook_secret", "POST", "/v1/webhooks/{webhook_id}/rotate-secret", idempotent=True, shown_once="secret"
)
TEST_WEBHOOK = Operation("test_webhook", "POST", "/v1/webhooks/{webhook_id}/test", idempotent=True)
LIST_WEBHOOK_DELIVERIES = Operation("list_webhook_deliveries", "GET", "/v1/webhooks/{webhook_id}/deliveries")
REDELIVER_WEBHOOK = Operation(
    "redeliver_webhook", "POST", "/v1/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver", idempotent=True
)

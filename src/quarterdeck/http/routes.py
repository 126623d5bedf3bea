"""The whole API on a page. What each operation is stands beside its handler."""

from quarterdeck.api_keys.http import create_api_key, list_api_keys, revoke_api_key
from quarterdeck.events.http import list_session_events
from quarterdeck.http.operation import at
from quarterdeck.runs.http import cancel_run, get_run, list_session_runs, submit_input
from quarterdeck.sessions.http import create_session, create_session_token
from quarterdeck.skills.http import create_skill, push_skill_version
from quarterdeck.webhooks.http import (
    change_webhook,
    create_webhook,
    delete_webhook,
    get_webhook,
    list_webhook_deliveries,
    list_webhooks,
    redeliver_webhook,
    rotate_webhook_secret,
    test_webhook,
)

OPERATIONS = (
    at("POST", "/v1/sessions/{session_id}/events", submit_input),
    at("GET", "/v1/sessions/{session_id}/events", list_session_events),
    at("GET", "/v1/sessions/{session_id}/runs", list_session_runs),
    at("GET", "/v1/runs/{run_id}", get_run),
    at("POST", "/v1/runs/{run_id}/cancel", cancel_run),
    at("GET", "/v1/api-keys", list_api_keys),
    at("POST", "/v1/api-keys", create_api_key),
    at("POST", "/v1/api-keys/{api_key_id}/revoke", revoke_api_key),
    at("POST", "/v1/sessions", create_session),
    at("POST", "/v1/sessions/{session_id}/tokens", create_session_token),
    at("POST", "/v1/skills", create_skill),
    at("POST", "/v1/skills/{skill_id}/versions", push_skill_version),
    at("GET", "/v1/webhooks", list_webhooks),
    at("POST", "/v1/webhooks", create_webhook),
    at("GET", "/v1/webhooks/{webhook_id}", get_webhook),
    at("PATCH", "/v1/webhooks/{webhook_id}", change_webhook),
    at("DELETE", "/v1/webhooks/{webhook_id}", delete_webhook),
    at("POST", "/v1/webhooks/{webhook_id}/rotate-secret", rotate_webhook_secret),
    at("POST", "/v1/webhooks/{webhook_id}/test", test_webhook),
    at("GET", "/v1/webhooks/{webhook_id}/deliveries", list_webhook_deliveries),
    at("POST", "/v1/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver", redeliver_webhook),
)

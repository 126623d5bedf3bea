"""The whole API on one page. Each handler has the description of its operation."""

from quarterdeck.agents.http import (
    change_agent,
    create_agent,
    diff_agent_versions,
    get_agent,
    get_agent_version,
    list_agent_versions,
    list_agents,
    push_agent_version,
)
from quarterdeck.api_keys.http import create_api_key, get_api_key, list_api_keys, revoke_api_key, rotate_api_key
from quarterdeck.auth.http import whoami
from quarterdeck.changes.audit.http import list_audit_events
from quarterdeck.connections.credentials.http import (
    create_credential,
    delete_credential,
    list_credentials,
    rotate_credential,
)
from quarterdeck.connections.servers.http import (
    change_mcp_server,
    check_mcp_server,
    create_mcp_server,
    delete_mcp_server,
    get_mcp_server,
    list_mcp_servers,
)
from quarterdeck.events.http import list_session_events
from quarterdeck.files.http import delete_file, download_file, get_file, upload_file
from quarterdeck.http.operation import at
from quarterdeck.insights.activity.http import get_activity
from quarterdeck.insights.agent_stats.http import get_agent_stats
from quarterdeck.insights.usage.http import get_usage
from quarterdeck.models.http import list_models
from quarterdeck.runs.action_http import get_action, list_actions, resolve_action
from quarterdeck.runs.http import cancel_run, discard_input, get_run, list_session_runs, retry_run, submit_input
from quarterdeck.session_files.http import download_session_archive, download_session_file, list_session_files
from quarterdeck.sessions.http import (
    change_session,
    create_session,
    delete_session,
    export_session,
    fork_session,
    get_session,
    list_sessions,
)
from quarterdeck.sessions.token_http import create_session_token, list_session_tokens, revoke_session_token
from quarterdeck.skills.http import (
    change_skill,
    create_skill,
    delete_skill,
    diff_skill_versions,
    download_skill_bundle,
    download_skill_file,
    get_skill,
    get_skill_version,
    list_skill_versions,
    list_skills,
    push_skill_version,
)
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
from quarterdeck.workspaces.http import change_workspace, get_workspace, list_members

OPERATIONS = (
    at("POST", "/v1/sessions/{session_id}/events", submit_input),
    at("GET", "/v1/sessions/{session_id}/events", list_session_events),
    at("GET", "/v1/sessions", list_sessions),
    at("POST", "/v1/sessions", create_session),
    at("GET", "/v1/sessions/{session_id}", get_session),
    at("PATCH", "/v1/sessions/{session_id}", change_session),
    at("DELETE", "/v1/sessions/{session_id}", delete_session),
    at("POST", "/v1/sessions/{session_id}/fork", fork_session),
    at("GET", "/v1/sessions/{session_id}/export", export_session),
    at("GET", "/v1/sessions/{session_id}/files", list_session_files),
    at("GET", "/v1/sessions/{session_id}/files/content", download_session_file),
    at("GET", "/v1/sessions/{session_id}/files/archive", download_session_archive),
    at("GET", "/v1/sessions/{session_id}/tokens", list_session_tokens),
    at("POST", "/v1/sessions/{session_id}/tokens", create_session_token),
    at("POST", "/v1/sessions/{session_id}/tokens/{session_token_id}/revoke", revoke_session_token),
    at("DELETE", "/v1/sessions/{session_id}/inputs/{input_id}", discard_input),
    at("GET", "/v1/sessions/{session_id}/runs", list_session_runs),
    at("GET", "/v1/runs/{run_id}", get_run),
    at("POST", "/v1/runs/{run_id}/cancel", cancel_run),
    at("POST", "/v1/runs/{run_id}/retry", retry_run),
    at("GET", "/v1/actions", list_actions),
    at("GET", "/v1/actions/{action_id}", get_action),
    at("POST", "/v1/actions/{action_id}/resolve", resolve_action),
    at("GET", "/v1/models", list_models),
    at("GET", "/v1/whoami", whoami),
    at("GET", "/v1/api-keys", list_api_keys),
    at("POST", "/v1/api-keys", create_api_key),
    at("GET", "/v1/api-keys/{api_key_id}", get_api_key),
    at("POST", "/v1/api-keys/{api_key_id}/revoke", revoke_api_key),
    at("POST", "/v1/api-keys/{api_key_id}/rotate", rotate_api_key),
    at("POST", "/v1/skills", create_skill),
    at("GET", "/v1/skills", list_skills),
    at("GET", "/v1/skills/{skill_id}", get_skill),
    at("PATCH", "/v1/skills/{skill_id}", change_skill),
    at("DELETE", "/v1/skills/{skill_id}", delete_skill),
    at("POST", "/v1/skills/{skill_id}/versions", push_skill_version),
    at("GET", "/v1/skills/{skill_id}/versions", list_skill_versions),
    at("GET", "/v1/skills/{skill_id}/versions/{version}", get_skill_version),
    at("GET", "/v1/skills/{skill_id}/versions/{version}/bundle", download_skill_bundle),
    at("GET", "/v1/skills/{skill_id}/versions/{version}/file", download_skill_file),
    at("GET", "/v1/skills/{skill_id}/diff", diff_skill_versions),
    at("POST", "/v1/agents", create_agent),
    at("GET", "/v1/agents", list_agents),
    at("GET", "/v1/agents/{agent_id}", get_agent),
    at("PATCH", "/v1/agents/{agent_id}", change_agent),
    at("POST", "/v1/agents/{agent_id}/versions", push_agent_version),
    at("GET", "/v1/agents/{agent_id}/versions", list_agent_versions),
    at("GET", "/v1/agents/{agent_id}/versions/{version}", get_agent_version),
    at("GET", "/v1/agents/{agent_id}/diff", diff_agent_versions),
    at("GET", "/v1/agents/{agent_id}/stats", get_agent_stats),
    at("POST", "/v1/mcp-servers", create_mcp_server),
    at("GET", "/v1/mcp-servers", list_mcp_servers),
    at("GET", "/v1/mcp-servers/{mcp_server_id}", get_mcp_server),
    at("PATCH", "/v1/mcp-servers/{mcp_server_id}", change_mcp_server),
    at("DELETE", "/v1/mcp-servers/{mcp_server_id}", delete_mcp_server),
    at("POST", "/v1/mcp-servers/{mcp_server_id}/check", check_mcp_server),
    at("POST", "/v1/files", upload_file),
    at("GET", "/v1/files/{file_id}", get_file),
    at("DELETE", "/v1/files/{file_id}", delete_file),
    at("GET", "/v1/files/{file_id}/content", download_file),
    at("GET", "/v1/workspace", get_workspace),
    at("PATCH", "/v1/workspace", change_workspace),
    at("GET", "/v1/members", list_members),
    at("GET", "/v1/activity", get_activity),
    at("GET", "/v1/usage", get_usage),
    at("GET", "/v1/audit-events", list_audit_events),
    at("GET", "/v1/credentials", list_credentials),
    at("POST", "/v1/credentials", create_credential),
    at("POST", "/v1/credentials/{credential_id}/rotate", rotate_credential),
    at("DELETE", "/v1/credentials/{credential_id}", delete_credential),
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

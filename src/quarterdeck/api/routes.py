"""The whole API on one page. Each function has the declaration of its operation."""

from quarterdeck.agents import service as agents
from quarterdeck.api_keys import service as api_keys
from quarterdeck.auth import service as auth
from quarterdeck.changes import audit_log as audit
from quarterdeck.connections.credentials import service as credentials
from quarterdeck.connections.servers import service as mcp_servers
from quarterdeck.core.operation import at
from quarterdeck.events import http as events_http
from quarterdeck.files import http as files_http
from quarterdeck.files import service as files
from quarterdeck.insights import service as insights
from quarterdeck.models import catalog as models
from quarterdeck.people import device_codes, invitations, members, profiles
from quarterdeck.people import http as people_http
from quarterdeck.runs import action_service as actions
from quarterdeck.runs import service as runs
from quarterdeck.session_files import http as session_files_http
from quarterdeck.session_files import service as session_files
from quarterdeck.sessions import http as sessions_http
from quarterdeck.sessions import service as sessions
from quarterdeck.sessions import token_service as session_tokens
from quarterdeck.skills import http as skills_http
from quarterdeck.skills import service as skills
from quarterdeck.trusted_jobs import service as trusted_jobs
from quarterdeck.webhooks import service as webhooks
from quarterdeck.workspaces import service as workspaces

OPERATIONS = (
    at("POST", "/v1/sessions/{session_id}/events", runs.submit_input),
    at("GET", "/v1/sessions/{session_id}/events", events_http.list_session_events),
    at("GET", "/v1/sessions", sessions.list_sessions),
    at("POST", "/v1/sessions", sessions.create_session),
    at("GET", "/v1/sessions/{session_id}", sessions.get_session),
    at("PATCH", "/v1/sessions/{session_id}", sessions.change_session),
    at("DELETE", "/v1/sessions/{session_id}", sessions.delete_session),
    at("POST", "/v1/sessions/{session_id}/fork", sessions.fork_session),
    at("GET", "/v1/sessions/{session_id}/export", sessions_http.export_session),
    at("GET", "/v1/sessions/{session_id}/files", session_files.list_session_files),
    at("GET", "/v1/sessions/{session_id}/files/content", session_files_http.download_session_file),
    at("GET", "/v1/sessions/{session_id}/files/archive", session_files_http.download_session_archive),
    at("GET", "/v1/sessions/{session_id}/tokens", session_tokens.list_session_tokens),
    at("POST", "/v1/sessions/{session_id}/tokens", session_tokens.create_session_token),
    at("POST", "/v1/sessions/{session_id}/tokens/{session_token_id}/revoke", session_tokens.revoke_session_token),
    at("DELETE", "/v1/sessions/{session_id}/inputs/{input_id}", runs.discard_input),
    at("GET", "/v1/sessions/{session_id}/runs", runs.list_session_runs),
    at("GET", "/v1/runs/{run_id}", runs.get_run),
    at("POST", "/v1/runs/{run_id}/cancel", runs.cancel_run),
    at("POST", "/v1/runs/{run_id}/retry", runs.retry_run),
    at("GET", "/v1/actions", actions.list_actions),
    at("GET", "/v1/actions/{action_id}", actions.get_action),
    at("POST", "/v1/actions/{action_id}/resolve", actions.resolve_action),
    at("GET", "/v1/models", models.list_models),
    at("GET", "/v1/whoami", auth.whoami),
    at("GET", "/v1/api-keys", api_keys.list_api_keys),
    at("POST", "/v1/api-keys", api_keys.create_api_key),
    at("GET", "/v1/api-keys/{api_key_id}", api_keys.get_api_key),
    at("POST", "/v1/api-keys/{api_key_id}/revoke", api_keys.revoke_api_key),
    at("POST", "/v1/api-keys/{api_key_id}/rotate", api_keys.rotate_api_key),
    at("GET", "/v1/trusted-jobs", trusted_jobs.list_trusted_jobs),
    at("POST", "/v1/trusted-jobs/exchange", trusted_jobs.exchange_job_token),
    at("DELETE", "/v1/trusted-jobs/{trusted_job_id}", trusted_jobs.delete_trusted_job),
    at("POST", "/v1/skills", skills.create_skill),
    at("GET", "/v1/skills", skills.list_skills),
    at("GET", "/v1/skills/{skill_id}", skills.get_skill),
    at("PATCH", "/v1/skills/{skill_id}", skills.change_skill),
    at("DELETE", "/v1/skills/{skill_id}", skills.delete_skill),
    at("POST", "/v1/skills/{skill_id}/versions", skills_http.push_skill_version),
    at("GET", "/v1/skills/{skill_id}/versions", skills.list_skill_versions),
    at("GET", "/v1/skills/{skill_id}/versions/{version}", skills.get_skill_version),
    at("GET", "/v1/skills/{skill_id}/versions/{version}/bundle", skills_http.download_skill_bundle),
    at("GET", "/v1/skills/{skill_id}/versions/{version}/file", skills_http.download_skill_file),
    at("POST", "/v1/skills/{skill_id}/trusted-jobs", trusted_jobs.create_trusted_job),
    at("GET", "/v1/skills/{skill_id}/diff", skills.diff_skill_versions),
    at("POST", "/v1/agents", agents.create_agent),
    at("GET", "/v1/agents", agents.list_agents),
    at("GET", "/v1/agents/{agent_id}", agents.get_agent),
    at("PATCH", "/v1/agents/{agent_id}", agents.change_agent),
    at("POST", "/v1/agents/{agent_id}/versions", agents.push_agent_version),
    at("GET", "/v1/agents/{agent_id}/versions", agents.list_agent_versions),
    at("GET", "/v1/agents/{agent_id}/versions/{version}", agents.get_agent_version),
    at("GET", "/v1/agents/{agent_id}/diff", agents.diff_agent_versions),
    at("GET", "/v1/agents/{agent_id}/stats", insights.get_agent_stats),
    at("POST", "/v1/mcp-servers", mcp_servers.create_mcp_server),
    at("GET", "/v1/mcp-servers", mcp_servers.list_mcp_servers),
    at("GET", "/v1/mcp-servers/{mcp_server_id}", mcp_servers.get_mcp_server),
    at("PATCH", "/v1/mcp-servers/{mcp_server_id}", mcp_servers.change_mcp_server),
    at("DELETE", "/v1/mcp-servers/{mcp_server_id}", mcp_servers.delete_mcp_server),
    at("POST", "/v1/mcp-servers/{mcp_server_id}/check", mcp_servers.check_mcp_server),
    at("POST", "/v1/files", files_http.upload_file),
    at("GET", "/v1/files/{file_id}", files.get_file),
    at("DELETE", "/v1/files/{file_id}", files.delete_file),
    at("GET", "/v1/files/{file_id}/content", files_http.download_file),
    at("GET", "/v1/workspace", workspaces.get_workspace),
    at("PATCH", "/v1/workspace", workspaces.change_workspace),
    at("POST", "/v1/workspace/leave", members.leave_workspace),
    at("POST", "/v1/workspace/join", invitations.join_workspace),
    at("GET", "/v1/members", members.list_members),
    at("PATCH", "/v1/members/{member_id}", members.change_member),
    at("DELETE", "/v1/members/{member_id}", members.remove_member),
    at("GET", "/v1/invitations", invitations.list_invitations),
    at("POST", "/v1/invitations", invitations.create_invitation),
    at("POST", "/v1/invitations/look-up", invitations.look_up_invitation),
    at("POST", "/v1/invitations/accept", people_http.accept_invitation),
    at("DELETE", "/v1/invitations/{invitation_id}", invitations.withdraw_invitation),
    at("POST", "/v1/sign-in", people_http.sign_in),
    at("GET", "/v1/sign-in/providers", people_http.list_sign_in_providers),
    at("POST", "/v1/sign-in/begin", people_http.begin_sign_in),
    at("POST", "/v1/sign-out", people_http.sign_out),
    at("GET", "/v1/profile", profiles.get_profile),
    at("PATCH", "/v1/profile", profiles.change_profile),
    at("POST", "/v1/profile/password", profiles.change_password),
    at("POST", "/v1/profile/connect-provider", people_http.connect_provider),
    at("GET", "/v1/devices", profiles.list_devices),
    at("POST", "/v1/devices/end-all", profiles.end_all_devices),
    at("DELETE", "/v1/devices/{device_id}", profiles.end_device),
    at("POST", "/v1/device-codes", device_codes.create_device_code),
    at("POST", "/v1/device-codes/redeem", device_codes.redeem_device_code),
    at("POST", "/v1/device-codes/look-up", device_codes.look_up_device_code),
    at("POST", "/v1/device-codes/answer", device_codes.answer_device_code),
    at("GET", "/v1/activity", insights.get_activity),
    at("GET", "/v1/usage", insights.get_usage),
    at("GET", "/v1/audit-events", audit.list_audit_events),
    at("GET", "/v1/credentials", credentials.list_credentials),
    at("POST", "/v1/credentials", credentials.create_credential),
    at("POST", "/v1/credentials/{credential_id}/rotate", credentials.rotate_credential),
    at("DELETE", "/v1/credentials/{credential_id}", credentials.delete_credential),
    at("GET", "/v1/webhooks", webhooks.list_webhooks),
    at("POST", "/v1/webhooks", webhooks.create_webhook),
    at("GET", "/v1/webhooks/{webhook_id}", webhooks.get_webhook),
    at("PATCH", "/v1/webhooks/{webhook_id}", webhooks.change_webhook),
    at("DELETE", "/v1/webhooks/{webhook_id}", webhooks.delete_webhook),
    at("POST", "/v1/webhooks/{webhook_id}/rotate-secret", webhooks.rotate_webhook_secret),
    at("POST", "/v1/webhooks/{webhook_id}/test", webhooks.test_webhook),
    at("GET", "/v1/webhooks/{webhook_id}/deliveries", webhooks.list_webhook_deliveries),
    at("POST", "/v1/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver", webhooks.redeliver_webhook),
)

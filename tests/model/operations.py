"""The operations that are called, and how they refuse, as the interface has them."""

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True)
class Operation:
    method: str
    path: str
    # The status of a success.
    status: int
    permission: str
    # What the last id in its path names.
    about: str | None


OPERATIONS = {
    "create_api_key": Operation("POST", "/v1/api-keys", 201, "key.manage", None),
    "rotate_api_key": Operation("POST", "/v1/api-keys/{}/rotate", 201, "key.manage", "key"),
    "revoke_api_key": Operation("POST", "/v1/api-keys/{}/revoke", 200, "key.manage", "key"),
    "get_api_key": Operation("GET", "/v1/api-keys/{}", 200, "workspace.read", "key"),
    "list_api_keys": Operation("GET", "/v1/api-keys", 200, "workspace.read", None),
    "create_session": Operation("POST", "/v1/sessions", 201, "session.manage", None),
    "get_session": Operation("GET", "/v1/sessions/{}", 200, "workspace.read", "session"),
    "list_sessions": Operation("GET", "/v1/sessions", 200, "workspace.read", None),
    "change_session": Operation("PATCH", "/v1/sessions/{}", 200, "session.manage", "session"),
    "delete_session": Operation("DELETE", "/v1/sessions/{}", 204, "session.manage", "session"),
    "create_session_token": Operation("POST", "/v1/sessions/{}/tokens", 201, "session.manage", "session"),
    "list_session_tokens": Operation("GET", "/v1/sessions/{}/tokens", 200, "workspace.read", "session"),
    "revoke_session_token": Operation("POST", "/v1/sessions/{}/tokens/{}/revoke", 200, "session.manage", "token"),
    "list_session_events": Operation("GET", "/v1/sessions/{}/events", 200, "workspace.read", "session"),
    "list_session_runs": Operation("GET", "/v1/sessions/{}/runs", 200, "workspace.read", "session"),
    "submit_input": Operation("POST", "/v1/sessions/{}/events", 200, "session.manage", "session"),
    "get_run": Operation("GET", "/v1/runs/{}", 200, "workspace.read", "run"),
    "cancel_run": Operation("POST", "/v1/runs/{}/cancel", 200, "session.manage", "run"),
    "list_actions": Operation("GET", "/v1/actions", 200, "workspace.read", None),
    "get_action": Operation("GET", "/v1/actions/{}", 200, "workspace.read", "action"),
    "resolve_action": Operation("POST", "/v1/actions/{}/resolve", 200, "action.resolve", "action"),
    "create_skill": Operation("POST", "/v1/skills", 201, "skill.manage", None),
    "get_skill": Operation("GET", "/v1/skills/{}", 200, "workspace.read", "skill"),
    "list_skills": Operation("GET", "/v1/skills", 200, "workspace.read", None),
    "change_skill": Operation("PATCH", "/v1/skills/{}", 200, "skill.manage", "skill"),
    "push_skill_version": Operation("POST", "/v1/skills/{}/versions", 201, "skill.manage", "skill"),
    "list_skill_versions": Operation("GET", "/v1/skills/{}/versions", 200, "workspace.read", "skill"),
    "list_audit_events": Operation("GET", "/v1/audit-events", 200, "workspace.read", None),
}
# What a session's own tokens may do.
OF_TOKENS = {"get_session", "list_session_events", "list_session_runs", "submit_input", "get_run", "cancel_run"}
# And those that were created with `may_resolve`.
OF_RESOLVING_TOKENS = {"list_actions", "get_action", "resolve_action"}


class Refusal(Enum):
    UNAUTHORIZED = (401, "unauthorized")
    FORBIDDEN = (403, "forbidden")
    NOT_FOUND = (404, "not_found")
    INVALID = (400, "invalid_request")
    CONFLICT = (409, "conflict")
    STALE = (412, "precondition_failed")


class Refused(Exception):
    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal)
        self.status, self.code = refusal.value

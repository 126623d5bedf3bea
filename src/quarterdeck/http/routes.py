"""The whole API on a page."""

from quarterdeck import errors
from quarterdeck.access.model import Permission
from quarterdeck.api_keys.http import create_api_key, list_api_keys, revoke_api_key
from quarterdeck.api_keys.model import ApiKeyBody, ApiKeyPage, CreateApiKeyBody, CreatedApiKeyBody
from quarterdeck.http.operation import Operation, Payload, Refusal
from quarterdeck.runs.http import submit_input
from quarterdeck.runs.model import InputEvent, SubmitKindBody
from quarterdeck.sessions.http import create_session, create_session_token
from quarterdeck.sessions.model import (
    CreatedSessionTokenBody,
    CreateSessionBody,
    CreateSessionTokenBody,
    SessionBody,
)
from quarterdeck.skills.http import create_skill, push_skill_version
from quarterdeck.skills.model import CreateSkillBody, SkillBody, SkillVersionBody

OPERATIONS = (
    Operation(
        name="submit_input",
        method="POST",
        path="/v1/sessions/{session_id}/events",
        handler=submit_input,
        summary="Submit a user turn to a session",
        description="Starts a run when none is active, steers the active one otherwise, and says which.",
        permission=Permission.SESSION_MANAGE,
        payload=InputEvent,
        success_status=200,
        success_type=SubmitKindBody,
        success="The input queued a new run or steered the active one. It is stored.",
        idempotent=True,
        session_token=True,
        refusals=(
            Refusal(
                "contended",
                errors.contended(),
                "The active run changed twice while the input was being stored. Nothing was stored.",
                "Send it again at once. Only this conflict carries Retry-After.",
            ),
        ),
    ),
    Operation(
        name="list_api_keys",
        method="GET",
        path="/v1/api-keys",
        handler=list_api_keys,
        summary="List the API keys of a workspace",
        description="One page per call, newest first unless order=asc. Revoked keys are listed too.",
        permission=Permission.WORKSPACE_READ,
        success_status=200,
        success_type=ApiKeyPage,
        success="One page. next_cursor is null on the last.",
        workspace_required=True,
        paged=True,
        hides_forbidden=True,
    ),
    Operation(
        name="create_api_key",
        method="POST",
        path="/v1/api-keys",
        handler=create_api_key,
        summary="Create an API key",
        description="With no permission that the calling key lacks and no longer life than its own.",
        permission=Permission.KEY_MANAGE,
        payload=CreateApiKeyBody,
        success_status=201,
        success_type=CreatedApiKeyBody,
        success="The new key, with its secret, which is shown only now.",
        idempotent=True,
        refusals=(
            Refusal(
                "exceeds_caller",
                errors.exceeds_caller("A key cannot give a permission it does not hold: skill.manage."),
                "The new key would hold a permission that the calling key lacks, or outlive it.",
                "Ask for less, or call with a key that holds more.",
            ),
        ),
    ),
    Operation(
        name="revoke_api_key",
        method="POST",
        path="/v1/api-keys/{api_key_id}/revoke",
        handler=revoke_api_key,
        summary="Revoke an API key",
        description="Takes effect at once, also on session tokens that the key made. Again is no error.",
        permission=Permission.KEY_MANAGE,
        success_status=200,
        success_type=ApiKeyBody,
        success="The revoked key.",
        idempotent=True,
    ),
    Operation(
        name="create_session",
        method="POST",
        path="/v1/sessions",
        handler=create_session,
        summary="Create a session",
        permission=Permission.SESSION_MANAGE,
        payload=CreateSessionBody,
        success_status=201,
        success_type=SessionBody,
        success="The new session.",
        idempotent=True,
    ),
    Operation(
        name="create_session_token",
        method="POST",
        path="/v1/sessions/{session_id}/tokens",
        handler=create_session_token,
        summary="Create a token for one session",
        description="It holds no permissions, works on its own session only, and ends with the key that made it.",
        permission=Permission.SESSION_MANAGE,
        payload=CreateSessionTokenBody,
        success_status=201,
        success_type=CreatedSessionTokenBody,
        success="The new token, which is shown only now.",
        idempotent=True,
        refusals=(
            Refusal(
                "exceeds_caller",
                errors.exceeds_caller("A key cannot give a longer life than its own."),
                "The token would outlive the calling key.",
                "Ask for an earlier `expires_at`, or leave it out.",
            ),
        ),
    ),
    Operation(
        name="create_skill",
        method="POST",
        path="/v1/skills",
        handler=create_skill,
        summary="Create a skill",
        description="Its content comes with its versions.",
        permission=Permission.SKILL_MANAGE,
        payload=CreateSkillBody,
        success_status=201,
        success_type=SkillBody,
        success="The new skill.",
        idempotent=True,
    ),
    Operation(
        name="push_skill_version",
        method="POST",
        path="/v1/skills/{skill_id}/versions",
        handler=push_skill_version,
        summary="Push a new version of a skill",
        description="A gzipped tar of the bundle's folder, SKILL.md at its root. Versions count from 1 without gaps.",
        permission=Permission.SKILL_MANAGE,
        payload=Payload.GZIP,
        success_status=201,
        success_type=SkillVersionBody,
        success="The new version.",
        idempotent=True,
    ),
)

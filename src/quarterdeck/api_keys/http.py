"""API keys over HTTP."""

from quarterdeck.api_keys import service
from quarterdeck.api_keys.model import ApiKeyBody, ApiKeyPage, CreateApiKeyBody, CreatedApiKeyBody, RotateApiKeyBody
from quarterdeck.auth.access import Access
from quarterdeck.changes.perform import Changes
from quarterdeck.core import errors
from quarterdeck.core.actors import Permission
from quarterdeck.core.call import Answer
from quarterdeck.core.settings import KeySettings
from quarterdeck.http.operation import Refusal, operation
from quarterdeck.http.request import Request

_EXCEEDS_CALLER = Refusal(
    "exceeds_caller",
    errors.exceeds_caller("A key cannot grant permissions that it does not have: skill.manage."),
    "The new key would have a permission that the calling key lacks, or a longer lifetime.",
    "Request fewer permissions or an earlier expiration, or use another key.",
)


@operation(
    summary="List the API keys of a workspace",
    description="One page per call, newest first unless order=asc. Includes revoked keys.",
    permission=Permission.WORKSPACE_READ,
    success_type=ApiKeyPage,
    success="One page. next_cursor is null on the last page.",
    workspace_required=True,
    paged=True,
    hides_forbidden=True,
)
async def list_api_keys(request: Request, access: Access) -> ApiKeyPage:
    page = request.page_request()
    return await service.list_api_keys(access, request.call_without_body(workspace_required=True), page)


@operation(
    summary="Get an API key",
    permission=Permission.WORKSPACE_READ,
    success_type=ApiKeyBody,
    success="The key, without its secret.",
)
async def get_api_key(request: Request, access: Access) -> ApiKeyBody:
    api_key_id = request.path_id("api_key_id")
    return await service.get_api_key(access, request.call_without_body(), api_key_id)


@operation(
    summary="Create an API key",
    description="The new key can have only permissions of the calling key, and no longer lifetime. If the workspace "
    "has a maximum lifetime, `expires_at` is required and must be within it.",
    permission=Permission.KEY_MANAGE,
    payload=CreateApiKeyBody,
    success_status=201,
    success_type=CreatedApiKeyBody,
    success="The new key, with its secret, which is shown only once.",
    idempotent=True,
    refusals=(_EXCEEDS_CALLER,),
)
async def create_api_key(request: Request, changes: Changes, key_settings: KeySettings) -> Answer:
    return await service.create_api_key(changes, key_settings, await request.call(CreateApiKeyBody))


@operation(
    summary="Revoke an API key",
    description="Takes effect immediately, also for session tokens that the key created. Revoking again changes "
    "nothing.",
    permission=Permission.KEY_MANAGE,
    success_type=ApiKeyBody,
    success="The revoked key.",
    idempotent=True,
)
async def revoke_api_key(request: Request, changes: Changes) -> Answer:
    api_key_id = request.path_id("api_key_id")
    return await service.revoke_api_key(changes, request.call_without_body(), api_key_id)


@operation(
    summary="Rotate an API key",
    description="Creates a new key with the same label, permissions and expiration. The old key works until the "
    "overlap ends; its session tokens keep their own expiration. Both keys share their Idempotency-Keys.",
    permission=Permission.KEY_MANAGE,
    payload=RotateApiKeyBody,
    success_status=201,
    success_type=CreatedApiKeyBody,
    success="The new key, with its secret, which is shown only once.",
    idempotent=True,
    refusals=(
        _EXCEEDS_CALLER,
        Refusal(
            "not_rotatable",
            errors.conflict("This key was already rotated. Rotate its replacement."),
            "The key was already rotated, is revoked or has expired.",
            "Rotate its replacement or create a new key.",
        ),
    ),
)
async def rotate_api_key(request: Request, changes: Changes, key_settings: KeySettings) -> Answer:
    api_key_id = request.path_id("api_key_id")
    return await service.rotate_api_key(changes, key_settings, await request.call(RotateApiKeyBody), api_key_id)

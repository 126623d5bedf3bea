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
    errors.exceeds_caller("A key cannot give a permission it does not hold: skill.manage."),
    "The new key would hold a permission that the calling key lacks, or outlive it.",
    "Ask for less, or call with a key that holds more.",
)


@operation(
    summary="List the API keys of a workspace",
    description="One page per call, newest first unless order=asc. Revoked keys are listed too.",
    permission=Permission.WORKSPACE_READ,
    success_type=ApiKeyPage,
    success="One page. next_cursor is null on the last.",
    workspace_required=True,
    paged=True,
    hides_forbidden=True,
)
async def list_api_keys(request: Request, access: Access) -> ApiKeyPage:
    page = request.page_request()
    return await service.list_api_keys(access, request.call_without_body(workspace_required=True), page)


@operation(
    summary="Show an API key",
    permission=Permission.WORKSPACE_READ,
    success_type=ApiKeyBody,
    success="The key, without its secret.",
)
async def get_api_key(request: Request, access: Access) -> ApiKeyBody:
    api_key_id = request.path_id("api_key_id")
    return await service.get_api_key(access, request.call_without_body(), api_key_id)


@operation(
    summary="Create an API key",
    description="With no permission that the calling key lacks and no longer life than its own. Where the workspace "
    "has set a longest life, `expires_at` must lie within it.",
    permission=Permission.KEY_MANAGE,
    payload=CreateApiKeyBody,
    success_status=201,
    success_type=CreatedApiKeyBody,
    success="The new key, with its secret, which is shown only now.",
    idempotent=True,
    refusals=(_EXCEEDS_CALLER,),
)
async def create_api_key(request: Request, changes: Changes, key_settings: KeySettings) -> Answer:
    return await service.create_api_key(changes, key_settings, await request.call(CreateApiKeyBody))


@operation(
    summary="Revoke an API key",
    description="Takes effect at once, also on session tokens that the key made. Again is no error.",
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
    description="Makes a new key with the same label, permissions and expiry. The old one goes on working for the "
    "overlap and ends then; tokens that it made live on until their own time. An Idempotency-Key that was used with "
    "the old key is known to the new one too.",
    permission=Permission.KEY_MANAGE,
    payload=RotateApiKeyBody,
    success_status=201,
    success_type=CreatedApiKeyBody,
    success="The new key, with its secret, which is shown only now.",
    idempotent=True,
    refusals=(
        _EXCEEDS_CALLER,
        Refusal(
            "not_rotatable",
            errors.conflict("This key was rotated already. Rotate the key that took its place."),
            "The key was rotated before, or has ended.",
            "Rotate the newer key, or create another.",
        ),
    ),
)
async def rotate_api_key(request: Request, changes: Changes, key_settings: KeySettings) -> Answer:
    api_key_id = request.path_id("api_key_id")
    return await service.rotate_api_key(changes, key_settings, await request.call(RotateApiKeyBody), api_key_id)

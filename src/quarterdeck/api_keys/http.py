"""API keys over HTTP."""

from quarterdeck.api_keys import service
from quarterdeck.api_keys.model import ApiKeyPage, CreateApiKeyBody
from quarterdeck.http.incoming import Incoming
from quarterdeck.idempotency.service import Answer
from quarterdeck.parts import Parts


async def list_api_keys(parts: Parts, incoming: Incoming) -> ApiKeyPage:
    request = incoming.page_request()
    return await service.list_api_keys(parts, incoming.call_without_body(workspace_required=True), request)


async def create_api_key(parts: Parts, incoming: Incoming) -> Answer:
    return await service.create_api_key(parts, await incoming.call(CreateApiKeyBody))


async def revoke_api_key(parts: Parts, incoming: Incoming) -> Answer:
    api_key_id = incoming.path_id("api_key_id")
    return await service.revoke_api_key(parts, incoming.call_without_body(), api_key_id)

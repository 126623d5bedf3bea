"""HTTP handlers of credentials."""

from quarterdeck.auth.access import Access
from quarterdeck.changes.perform import Changes
from quarterdeck.connections.credentials import service
from quarterdeck.connections.credentials.authorizations import OAuthTokens
from quarterdeck.connections.credentials.model import (
    CreateCredentialBody,
    CredentialBody,
    CredentialPage,
    RotateCredentialBody,
)
from quarterdeck.core import errors
from quarterdeck.core.actors import Permission
from quarterdeck.core.call import Answer
from quarterdeck.core.secret_encryption import SecretCipher
from quarterdeck.core.settings import CredentialSettings
from quarterdeck.http.operation import Refusal, operation
from quarterdeck.http.request import Request


@operation(
    summary="List the credentials of a workspace",
    description="One page per call, newest first unless order=asc. Without the secrets.",
    permission=Permission.WORKSPACE_READ,
    success_type=CredentialPage,
    success="One page. next_cursor is null on the last page.",
    paged=True,
    cursor_must_exist=False,
)
async def list_credentials(request: Request, access: Access) -> CredentialPage:
    page = request.page_request()
    return await service.list_credentials(access, request.call_without_body(), page)


@operation(
    summary="Create a credential",
    description="A secret for servers that agents use. It is stored encrypted and in no response.",
    permission=Permission.CREDENTIAL_MANAGE,
    payload=CreateCredentialBody,
    success_status=201,
    success_type=CredentialBody,
    success="The new credential, without its secret.",
    idempotent=True,
    etag=True,
    refusals=(
        Refusal(
            "name_taken",
            errors.conflict("This workspace already has a credential with this name."),
            "Another credential has this name.",
            "Use another name, or rotate the other credential.",
        ),
        Refusal(
            "too_many",
            errors.conflict("This workspace already has the maximum of 200 credentials. Delete one first."),
            "The workspace has the maximum number of credentials (default: 200).",
            "Delete a credential that you no longer need.",
        ),
    ),
)
async def create_credential(
    request: Request, changes: Changes, settings: CredentialSettings, cipher: SecretCipher, tokens: OAuthTokens
) -> Answer:
    call = await request.call(CreateCredentialBody)
    return await service.create_credential(changes, settings, cipher, tokens, call)


@operation(
    summary="Rotate the secret of a credential",
    description="From now on, servers get the new secret. Everything else about the credential stays.",
    permission=Permission.CREDENTIAL_MANAGE,
    reads=True,
    payload=RotateCredentialBody,
    success_type=CredentialBody,
    success="The credential, without its secret.",
    idempotent=True,
    etag=True,
    conditional=True,
)
async def rotate_credential(request: Request, changes: Changes, cipher: SecretCipher) -> Answer:
    credential_id = request.path_id("credential_id")
    return await service.rotate_credential(changes, cipher, await request.call(RotateCredentialBody), credential_id)


@operation(
    summary="Delete a credential",
    permission=Permission.CREDENTIAL_MANAGE,
    success_status=204,
    success_type=None,
    success="The credential is deleted.",
    conditional=True,
    refusals=(
        Refusal(
            "in_use",
            errors.conflict("An MCP server uses this credential. Change or delete the server first."),
            "An MCP server uses the credential.",
            "Give the server another credential, or delete it.",
        ),
    ),
)
async def delete_credential(request: Request, changes: Changes) -> Answer:
    credential_id = request.path_id("credential_id")
    return await service.delete_credential(changes, request.call_without_body(), credential_id)

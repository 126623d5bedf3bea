"""Operations on credentials, and their use by connections to servers."""

from uuid import UUID

import msgspec

from quarterdeck.auth.access import Access, visible_record, visible_workspace
from quarterdeck.changes.model import ObjectType
from quarterdeck.changes.perform import Changes, Made
from quarterdeck.connections.credentials import store
from quarterdeck.connections.credentials.authorizations import OAuthTokens, UnusableAuthorization, authorization_of
from quarterdeck.connections.credentials.model import (
    CreateCredentialBody,
    CredentialBody,
    CredentialPage,
    CredentialType,
    Parameters,
    RotateCredentialBody,
    StoredCredential,
    UsableCredential,
)
from quarterdeck.core import errors
from quarterdeck.core.actors import Permission, Principal
from quarterdeck.core.call import Answer, Call
from quarterdeck.core.ids import new_id
from quarterdeck.core.operation import ErrorCase, operation
from quarterdeck.core.pages import PageRequest
from quarterdeck.core.secret_encryption import EncryptionKeyError, SecretCipher
from quarterdeck.core.settings import CredentialSettings
from quarterdeck.db.database import Connection

# Rules of credentials: which fields go with which kind.

# Headers that the connection itself sets.
_RESERVED_HEADERS = frozenset(
    [
        "accept",
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "last-event-id",
        "mcp-protocol-version",
        "mcp-session-id",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ]
)
_REQUIRED = {
    CredentialType.BEARER: frozenset[str](),
    CredentialType.HEADER: frozenset({"header"}),
    CredentialType.OAUTH_CLIENT_CREDENTIALS: frozenset({"token_url", "client_id"}),
}
_OPTIONAL = {CredentialType.OAUTH_CLIENT_CREDENTIALS: frozenset({"scope", "audience"})}


def credential_parameters(body: CreateCredentialBody) -> Parameters:
    given = {field: getattr(body, field) for field in Parameters.__struct_fields__}
    given = {field: value for field, value in given.items() if value is not None}
    required = _REQUIRED[body.kind]
    for field in sorted(required - given.keys()):
        raise errors.invalid(f"{field} is required for the kind {body.kind}.")
    for field in sorted(given.keys() - required - _OPTIONAL.get(body.kind, frozenset())):
        raise errors.invalid(f"{field} does not belong to the kind {body.kind}.")
    if body.header is not None and body.header.lower() in _RESERVED_HEADERS:
        raise errors.invalid("header names a header that every request sets itself.")
    return Parameters(**given)


@operation(
    summary="List the credentials of a workspace",
    description="One page per call, newest first unless order=asc. Without the secrets.",
    permission=Permission.WORKSPACE_READ,
    success="One page. next_cursor is null on the last page.",
    cursor_must_exist=False,
)
async def list_credentials(access: Access, call: Call[None], request: PageRequest) -> CredentialPage:
    return await access.page(call, visible_workspace(call), CredentialPage, request, store.page)


@operation(
    summary="Create a credential",
    description="A secret for servers that agents use. It is stored encrypted and in no response.",
    permission=Permission.CREDENTIAL_MANAGE,
    created=True,
    success="The new credential, without its secret.",
    idempotent=True,
    etag=True,
    refusals=(
        ErrorCase(
            "name_taken",
            errors.conflict("This workspace already has a credential with this name."),
            "Another credential has this name.",
            "Use another name, or rotate the other credential.",
        ),
        ErrorCase(
            "too_many",
            errors.conflict("This workspace already has the maximum of 200 credentials. Delete one first."),
            "The workspace has the maximum number of credentials (default: 200).",
            "Delete a credential that you no longer need.",
        ),
    ),
)
async def create_credential(
    changes: Changes,
    settings: CredentialSettings,
    cipher: SecretCipher,
    tokens: OAuthTokens,
    call: Call[CreateCredentialBody],
) -> Answer[CredentialBody]:
    async def effect(
        connection: Connection, principal: Principal, workspace_id: UUID, body: CreateCredentialBody
    ) -> Made:
        parameters = credential_parameters(body)
        if parameters.token_url is not None:
            tokens.check_url(parameters.token_url)
        await store.lock_workspace(connection, workspace_id)
        if await store.count(connection, workspace_id) >= settings.per_workspace:
            raise errors.conflict(
                f"This workspace already has the maximum of {settings.per_workspace} credentials. Delete one first."
            )
        if await store.is_name_taken(connection, workspace_id, body.name):
            raise errors.conflict("This workspace already has a credential with this name.")
        credential_id = new_id()
        credential = StoredCredential(
            id=credential_id,
            workspace_id=workspace_id,
            kind=body.kind,
            parameters=parameters,
            secret=_encrypt(cipher, credential_id, body.secret),
            revision=1,
        )
        await store.add(connection, workspace_id, principal.user_id, body.name, credential)
        created = await _stored(connection, workspace_id, credential_id)
        return Made.plain(created, credential_id, created.name, kind=created.kind)

    return await changes.perform(
        call,
        visible_workspace(call),
        ObjectType.CREDENTIAL,
        effect,
        compared=lambda body: msgspec.structs.replace(body, secret=_digest(cipher, body.secret)),
    )


@operation(
    summary="Rotate the secret of a credential",
    description="From now on, servers get the new secret. Everything else about the credential stays.",
    permission=Permission.CREDENTIAL_MANAGE,
    reads=True,
    success="The credential, without its secret.",
    idempotent=True,
    etag=True,
    conditional=True,
)
async def rotate_credential(
    changes: Changes, cipher: SecretCipher, call: Call[RotateCredentialBody], credential_id: UUID
) -> Answer[CredentialBody]:
    async def effect(
        connection: Connection, principal: Principal, _: CredentialBody, body: RotateCredentialBody
    ) -> Made:
        workspace_id = principal.workspace_id
        await store.lock(connection, workspace_id, credential_id)
        found = await _stored(connection, workspace_id, credential_id)
        call.check_unchanged(found.revision)
        secret = _encrypt(cipher, credential_id, body.secret)
        await store.rotate(connection, workspace_id, credential_id, secret)
        rotated = await _stored(connection, workspace_id, credential_id)
        return Made.plain(rotated, credential_id, rotated.name)

    return await changes.perform(
        call,
        visible_record(call, "credential", store.get, credential_id),
        ObjectType.CREDENTIAL,
        effect,
        compared=lambda body: msgspec.structs.replace(body, secret=_digest(cipher, body.secret)),
    )


@operation(
    summary="Delete a credential",
    permission=Permission.CREDENTIAL_MANAGE,
    success="The credential is deleted.",
    conditional=True,
    refusals=(
        ErrorCase(
            "in_use",
            errors.conflict("An MCP server uses this credential. Change or delete the server first."),
            "An MCP server uses the credential.",
            "Give the server another credential, or delete it.",
        ),
    ),
)
async def delete_credential(changes: Changes, call: Call[None], credential_id: UUID) -> Answer[None]:
    async def effect(connection: Connection, principal: Principal, _: CredentialBody, __: None) -> Made:
        workspace_id = principal.workspace_id
        await store.lock(connection, workspace_id, credential_id)
        found = await _stored(connection, workspace_id, credential_id)
        call.check_unchanged(found.revision)
        if await store.is_used(connection, workspace_id, credential_id):
            raise errors.conflict("An MCP server uses this credential. Change or delete the server first.")
        await store.delete(connection, workspace_id, credential_id)
        detail = {"kind": found.kind}
        return Made(shown=None, kept=None, object_id=credential_id, object_name=found.name, detail=detail)

    return await changes.perform(
        call, visible_record(call, "credential", store.get, credential_id), ObjectType.CREDENTIAL, effect
    )


async def hold_credential(connection: Connection, workspace_id: UUID, credential_id: UUID) -> None:
    """For a change that refers to the credential: it is not deleted before the end of the transaction."""
    if not await store.hold(connection, workspace_id, credential_id):
        raise errors.invalid("credential_id names no credential of this workspace.")


async def authorization(
    connection: Connection, cipher: SecretCipher, tokens: OAuthTokens, workspace_id: UUID, credential_id: UUID
) -> UsableCredential:
    """Calls no server: OAuth tokens are fetched at first use. If the secret cannot be decrypted, the use fails."""
    credential = errors.existing(await store.stored(connection, workspace_id, credential_id), "credential")
    try:
        secret = cipher.decrypt(credential_id, credential.secret).decode()
    except EncryptionKeyError as fault:
        return UsableCredential(UnusableAuthorization(credential_id, str(fault)), credential.revision)
    return UsableCredential(authorization_of(credential, secret, tokens), credential.revision)


async def reencrypt_credentials(connection: Connection, cipher: SecretCipher) -> int:
    """Encrypt every secret with the first key, unless it already is."""
    reencrypted = 0
    try:
        for credential_id, secret in await store.encrypted_secrets(connection):
            if not cipher.is_current(secret):
                fresh = cipher.encrypt(credential_id, cipher.decrypt(credential_id, secret))
                await store.set_secret(connection, credential_id, fresh)
                reencrypted += 1
    except EncryptionKeyError as fault:
        raise errors.conflict(f"The secret of a credential cannot be decrypted: {fault}.") from fault
    return reencrypted


async def _stored(connection: Connection, workspace_id: UUID, credential_id: UUID) -> CredentialBody:
    return errors.existing(await store.get(connection, workspace_id, credential_id), "credential")


def _encrypt(cipher: SecretCipher, credential_id: UUID, secret: str) -> bytes:
    try:
        return cipher.encrypt(credential_id, secret.encode())
    except EncryptionKeyError as fault:
        raise _no_key() from fault


def _digest(cipher: SecretCipher, secret: str) -> str:
    try:
        return cipher.digest(secret)
    except EncryptionKeyError as fault:
        raise _no_key() from fault


def _no_key() -> errors.ServiceError:
    return errors.unavailable("Secrets cannot be encrypted. The server's log has the reason.")

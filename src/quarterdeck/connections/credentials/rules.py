"""Rules of credentials: which fields go with which kind."""

from quarterdeck.connections.credentials.model import CreateCredentialBody, CredentialType, Parameters
from quarterdeck.core import errors

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


def parameters(body: CreateCredentialBody) -> Parameters:
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

"""Example values for the OpenAPI document."""

from quarterdeck.connections.credentials.model import (
    CreateCredentialBody,
    CredentialBody,
    CredentialPage,
    CredentialType,
    RotateCredentialBody,
)
from quarterdeck.core.example_ids import ADA, CREDENTIAL, MORNING

_SECRET = "the-token-of-the-tracker"

_CREDENTIAL = CredentialBody(
    id=CREDENTIAL,
    name="Issue tracker",
    kind=CredentialType.BEARER,
    header=None,
    token_url=None,
    client_id=None,
    scope=None,
    audience=None,
    rotated_at=None,
    created_at=MORNING,
    created_by=ADA,
    revision=1,
)

EXAMPLES = (
    CreateCredentialBody(name="Issue tracker", kind=CredentialType.BEARER, secret=_SECRET),
    RotateCredentialBody("the-next-token-of-the-tracker"),
    _CREDENTIAL,
    CredentialPage([_CREDENTIAL], None),
)

"""Records of credentials. No response has the secret, and no `repr` shows it."""

from enum import StrEnum
from typing import Annotated, Protocol
from uuid import UUID

from msgspec import Meta, Struct
from msgspec.structs import force_setattr

from quarterdeck.core.actors import ActorBody
from quarterdeck.core.example_ids import ADA, CREDENTIAL, MORNING
from quarterdeck.core.text_types import Moment, Name, plain_name

MIN_SECRET_CHARACTERS = 8
# Longest token that another server may issue. Secrets that are stored are shorter.
MAX_SECRET_CHARACTERS = 16 * 1024

# Shorter ones could not be redacted: they occur in ordinary text.
SecretText = Annotated[
    str,
    Meta(
        min_length=MIN_SECRET_CHARACTERS,
        max_length=8192,
        pattern=r"^[\x21-\x7e][\x20-\x7e]*[\x21-\x7e](?![\s\S])",
        description="Printable ASCII, without spaces at the ends. Stored encrypted, and in no response.",
    ),
]
HeaderName = Annotated[
    str,
    Meta(
        max_length=100,
        pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+(?![\s\S])",
        description="Kind `header` only: the name of the header whose value is the secret.",
    ),
]
TokenUrl = Annotated[
    str,
    Meta(
        max_length=2000,
        pattern="^https?://",
        description="Kind `oauth_client_credentials` only: the token endpoint, https with a public address.",
    ),
]
# Scopes and client ids are printable ASCII (RFC 6749, appendix A).
OAuthText = Annotated[str, Meta(min_length=1, max_length=1000, pattern=r"^[\x20-\x7e]+(?![\s\S])")]


class Authorization(Protocol):
    async def headers(self) -> dict[str, str]:
        """For one request. Fetches or refreshes a token first if that is needed. Raises AuthorizationError."""

    async def renew(self, refused: dict[str, str]) -> bool:
        """A request with the headers `refused` was answered 401. True: `headers` will give others, so the request can
        be repeated, once. False: the secret is not accepted. Many callers with the same headers cause one refresh."""

    def redact(self, text: str) -> str:
        """The text without the secrets: a server may send back what it was sent."""


class AuthorizationError(Exception):
    """The text is for people: without secrets. The detail goes to the operator's log."""

    def __init__(self, message: str, detail: str | None = None) -> None:
        super().__init__(message)
        self.detail = detail or message


class CredentialType(StrEnum):
    """How the secret is used. Not `CredentialKind`, which are the credentials for this API."""

    BEARER = "bearer"
    HEADER = "header"
    OAUTH_CLIENT_CREDENTIALS = "oauth_client_credentials"


Kind = Annotated[
    CredentialType,
    Meta(
        description="`bearer`: sent as `Authorization: Bearer <secret>`. `header`: sent as the value of a header. "
        "`oauth_client_credentials`: the secret of a client; the token that the token endpoint gives for it is sent."
    ),
]


class CreateCredentialBody(Struct, frozen=True, kw_only=True):
    name: Name
    kind: Kind
    secret: SecretText
    header: HeaderName | None = None
    token_url: TokenUrl | None = None
    client_id: Annotated[OAuthText | None, Meta(description="Kind `oauth_client_credentials` only.")] = None
    scope: Annotated[
        OAuthText | None, Meta(description="Kind `oauth_client_credentials` only: scopes separated by spaces.")
    ] = None
    audience: Annotated[
        OAuthText | None, Meta(description="Kind `oauth_client_credentials` only: some servers require it.")
    ] = None

    def __post_init__(self) -> None:
        force_setattr(self, "name", plain_name(self.name))

    def __repr__(self) -> str:
        return f"CreateCredentialBody(name={self.name!r}, kind={self.kind!r})"


class RotateCredentialBody(Struct, frozen=True):
    secret: SecretText

    def __repr__(self) -> str:
        return "RotateCredentialBody()"


class Parameters(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The parts of a credential that are not secret, as stored."""

    header: str | None = None
    token_url: str | None = None
    client_id: str | None = None
    scope: str | None = None
    audience: str | None = None


class CredentialBody(Struct, frozen=True, kw_only=True):
    id: UUID
    name: str
    kind: CredentialType
    header: str | None
    token_url: str | None
    client_id: str | None
    scope: str | None
    audience: str | None
    rotated_at: Annotated[Moment | None, Meta(description="null: the secret is still the first.")]
    created_at: Moment
    created_by: ActorBody
    revision: Annotated[int, Meta(description="Number of changes. The ETag is derived from it.")]


class CredentialPage(Struct, frozen=True):
    items: list[CredentialBody]
    next_cursor: UUID | None


class StoredCredential(Struct, frozen=True, kw_only=True):
    """What is needed to use a credential. The secret is encrypted."""

    id: UUID
    workspace_id: UUID
    kind: CredentialType
    parameters: Parameters
    secret: bytes
    revision: int


class UsableCredential(Struct, frozen=True):
    authorization: Authorization
    # Changes when the secret is rotated.
    revision: int


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

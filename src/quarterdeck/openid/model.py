"""OpenID providers as the operator describes them, and what a sign-in at one of them tells."""

from typing import Annotated, Literal
from uuid import UUID

from msgspec import Meta, Struct

_MESSAGE_CHARACTERS = 300

Role = Literal["owner", "admin", "member", "viewer"]
ProviderName = Annotated[str, Meta(pattern=r"\A[a-z0-9][a-z0-9-]{0,31}\Z")]
_Scope = Annotated[str, Meta(pattern=r"\A[\x21\x23-\x5b\x5d-\x7e]{1,200}\Z")]
_Text = Annotated[str, Meta(min_length=1, max_length=255)]
Secret = Annotated[str, Meta(min_length=1, max_length=4096)]


class ProvidersError(Exception):
    """What is wrong with the settings of the providers. Never contains a secret."""


class OpenIdError(Exception):
    """Why there is no sign-in. The text can be shown to users, the detail goes to the operator's log.

    Temporary: the provider could not be asked, or says so itself. The same call may succeed later. `code`: the error
    that the provider names, as OAuth defines it.
    """

    def __init__(self, message: str, is_temporary: bool, detail: str | None = None, *, code: str | None = None) -> None:
        super().__init__(message[:_MESSAGE_CHARACTERS])
        self.is_temporary = is_temporary
        self.code = code
        self.refresh_token: str | None = None
        self.detail = (detail or message)[:_MESSAGE_CHARACTERS]


class GroupRole(Struct, frozen=True, forbid_unknown_fields=True):
    """Members of a group have a role in a workspace."""

    group: _Text
    workspace_id: UUID
    role: Role


class RoleOfAll(Struct, frozen=True, forbid_unknown_fields=True):
    """Everybody who can sign in at the provider has a role in a workspace."""

    workspace_id: UUID
    role: Role


class DescribedProvider(Struct, frozen=True, kw_only=True):
    """The part of a provider's settings that is in the file."""

    # For the button of the sign-in page.
    title: _Text
    # As in the provider's discovery document, character by character.
    issuer: str
    client_id: _Text
    # None: a public client.
    client_secret: Secret | None = None
    # How the client names itself. None: in a header if the provider takes that, otherwise in the form.
    client_authentication: Literal["client_secret_basic", "client_secret_post"] | None = None
    scopes: tuple[_Scope, ...] = ("openid", "profile", "email")
    # The claim with the names of a person's groups. None: groups are not read.
    groups_claim: _Text | None = None
    roles: tuple[GroupRole, ...] = ()
    everybody: tuple[RoleOfAll, ...] = ()
    # Added to the authorization request, such as `prompt: consent`, which some providers require for refresh tokens.
    authorization_parameters: dict[str, str] = {}


class ProviderSettings(DescribedProvider, frozen=True, kw_only=True):
    name: ProviderName
    clock_skew_seconds: float = 60.0
    discovery_seconds: float = 3600.0
    key_pause_seconds: float = 10.0

    def __repr__(self) -> str:
        return f"ProviderSettings(name={self.name!r}, issuer={self.issuer!r})"


class Claims(Struct, frozen=True, kw_only=True):
    """What a provider says about a person. `issuer` and `subject` together identify the person for ever; all else may
    change, and `email` may belong to somebody else unless it is verified."""

    issuer: str
    subject: str
    email: str | None
    is_email_verified: bool
    name: str | None
    # Empty if the settings name no claim with groups.
    groups: frozenset[str]
    # Replaces the one before. None: the provider issues none.
    refresh_token: str | None
    # A hint for the sign-out. None: a refresh without a new one; keep the one before.
    id_token: str | None
    # The session at the provider.
    sid: str | None

    def __repr__(self) -> str:
        return f"Claims(issuer={self.issuer!r}, subject={self.subject!r})"

"""OpenID providers as the operator describes them, and what a sign-in at one of them tells. Imports nothing heavy:
processes read the providers at their start.
"""

import re
from pathlib import Path
from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import Meta, Struct

from quarterdeck.core.errors import ServiceError
from quarterdeck.core.settings import OidcSettings, variable
from quarterdeck.outbound.rules import AddressPolicy, read_url

_FILE_BYTES = 1024 * 1024
_MESSAGE_CHARACTERS = 300

Role = Literal["owner", "admin", "member", "viewer"]
ProviderName = Annotated[str, Meta(pattern=r"\A[a-z0-9][a-z0-9-]{0,31}\Z")]
_Scope = Annotated[str, Meta(pattern=r"\A[\x21\x23-\x5b\x5d-\x7e]{1,200}\Z")]
_Text = Annotated[str, Meta(min_length=1, max_length=255)]
_Secret = Annotated[str, Meta(min_length=1, max_length=4096)]

# Parameters of the authorization request that the flow itself sets.
_OWN_PARAMETERS = frozenset(
    (
        "client_id",
        "code_challenge",
        "code_challenge_method",
        "nonce",
        "redirect_uri",
        "request",
        "request_uri",
        "response_mode",
        "response_type",
        "scope",
        "state",
    )
)


class ProvidersError(Exception):
    """What is wrong with the settings of the providers. Never contains a secret."""


class OpenIdError(Exception):
    """Why there is no sign-in. The text can be shown to users, the detail goes to the operator's log.

    Temporary: the provider could not be asked, or says so itself. The same call may succeed later.
    """

    def __init__(self, message: str, is_temporary: bool, detail: str | None = None) -> None:
        super().__init__(message[:_MESSAGE_CHARACTERS])
        self.is_temporary = is_temporary
        self.detail = (detail or message)[:_MESSAGE_CHARACTERS]


class GroupRole(Struct, frozen=True, forbid_unknown_fields=True):
    """Members of a group have a role in a workspace."""

    group: _Text
    workspace_id: UUID
    role: Role


class _Described(Struct, frozen=True, kw_only=True):
    """The part of a provider's settings that is in the file."""

    # For the button of the sign-in page.
    title: _Text
    # As in the provider's discovery document, character by character.
    issuer: str
    client_id: _Text
    # None: a public client.
    client_secret: _Secret | None = None
    # How the client names itself. None: in a header if the provider takes that, otherwise in the form.
    client_authentication: Literal["client_secret_basic", "client_secret_post"] | None = None
    scopes: tuple[_Scope, ...] = ("openid", "profile", "email")
    # The claim with the names of a person's groups. None: groups are not read.
    groups_claim: _Text | None = None
    roles: tuple[GroupRole, ...] = ()
    # Added to the authorization request, such as `prompt: consent`, which some providers require for refresh tokens.
    authorization_parameters: dict[str, str] = {}


class ProviderSettings(_Described, frozen=True, kw_only=True):
    name: ProviderName
    clock_skew_seconds: float = 60.0
    discovery_seconds: float = 3600.0
    key_pause_seconds: float = 10.0

    def __repr__(self) -> str:
        return f"ProviderSettings(name={self.name!r}, issuer={self.issuer!r})"


class _Entry(_Described, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class SignedIn(Struct, frozen=True, kw_only=True):
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
        return f"SignedIn(issuer={self.issuer!r}, subject={self.subject!r})"


def read_providers(settings: OidcSettings) -> dict[str, ProviderSettings]:
    """By name, in the order of the file. Raises ProvidersError."""
    entries = _read_file(settings.providers_file)
    secrets = _read_secrets(settings.client_secrets)
    if unknown := sorted(secrets.keys() - entries.keys()):
        raise ProvidersError(f"{_SECRETS} names {', '.join(unknown)}, which {_FILE} does not describe")
    policy = AddressPolicy(exceptions=settings.allowed_addresses)
    return {name: _provider(name, entry, secrets.get(name), policy, settings) for name, entry in entries.items()}


_FILE = variable("oidc", "providers_file")
_SECRETS = variable("oidc", "client_secrets")


def _provider(
    name: str, entry: _Entry, secret: str | None, policy: AddressPolicy, settings: OidcSettings
) -> ProviderSettings:
    try:
        read_url(entry.issuer, policy, field="issuer")
    except ServiceError as fault:
        raise ProvidersError(f"{name}: {fault.message}") from None
    if "?" in entry.issuer:
        raise ProvidersError(f"{name}: issuer must have no query.")
    if "openid" not in entry.scopes:
        raise ProvidersError(f"{name}: scopes must contain openid.")
    if refused := sorted(_OWN_PARAMETERS & entry.authorization_parameters.keys()):
        raise ProvidersError(f"{name}: authorization_parameters must not contain {', '.join(refused)}.")
    if secret is not None and entry.client_secret is not None:
        raise ProvidersError(f"{name}: client_secret is in the file and in {_SECRETS}.")
    described = {field: getattr(entry, field) for field in entry.__struct_fields__}
    return ProviderSettings(
        **(described | {"client_secret": secret or entry.client_secret}),
        name=name,
        clock_skew_seconds=settings.clock_skew_seconds,
        discovery_seconds=settings.discovery_seconds,
        key_pause_seconds=settings.key_pause_seconds,
    )


def _read_file(file: str | None) -> dict[str, _Entry]:
    if file is None:
        return {}
    path = Path(file).expanduser()
    try:
        with path.open("rb") as source:
            text = source.read(_FILE_BYTES + 1)
        if len(text) > _FILE_BYTES:
            raise ProvidersError(f"{path} is larger than {_FILE_BYTES} bytes")
        return msgspec.yaml.decode(text or b"{}", type=dict[ProviderName, _Entry])
    except OSError as fault:
        raise ProvidersError(f"{path} cannot be read: {fault.strerror}") from fault
    except msgspec.ValidationError as fault:
        raise ProvidersError(f"{path} does not describe providers: {fault}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as fault:
        # Only the place: the message may quote the file, which may contain secrets.
        lines = re.findall(r", line ([0-9]+),", str(fault), re.ASCII)
        raise ProvidersError(f"{path} is not YAML" + (f" (line {lines[-1]})" if lines else "")) from None


def _read_secrets(text: str | None) -> dict[str, str]:
    if text is None:
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, _Secret])
    except msgspec.MsgspecError:
        raise ProvidersError(f'{_SECRETS} is not JSON such as {{"corporate": "…"}}') from None

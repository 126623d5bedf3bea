"""The providers of a process, by name, as the operator's file describes them. Imports nothing heavy: processes read the
file at their start.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from quarterdeck.core.errors import ServiceError
from quarterdeck.core.settings import OidcSettings, variable
from quarterdeck.openid.model import DescribedProvider, ProviderName, ProvidersError, ProviderSettings, Secret
from quarterdeck.outbound.rules import AddressPolicy, read_url

if TYPE_CHECKING:
    from quarterdeck.openid.provider import Provider
    from quarterdeck.outbound.http_client import OutboundClient

_FILE = variable("oidc", "providers_file")
_SECRETS = variable("oidc", "client_secrets")
_FILE_BYTES = 1024 * 1024

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


class Providers:
    """Raises ProvidersError."""

    def __init__(self, settings: OidcSettings) -> None:
        self._settings = settings
        # In the order of the sign-in page.
        self.described: Mapping[str, ProviderSettings] = read_providers(settings)
        # Created on first use.
        self._client: OutboundClient | None = None
        self._providers: dict[str, Provider] = {}

    def get(self, name: str) -> "Provider | None":
        described = self.described.get(name)
        if described is None:
            return None
        if name not in self._providers:
            from quarterdeck.openid.provider import Provider
            from quarterdeck.outbound.http_client import OutboundClient

            if self._client is None:
                policy = AddressPolicy(exceptions=self._settings.allowed_addresses)
                self._client = OutboundClient(policy, self._settings.request_seconds)
            self._providers[name] = Provider(described, self._client)
        return self._providers[name]

    def close(self) -> None:
        if self._client is not None:
            self._client.close()


class _Entry(DescribedProvider, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of the file."""


def read_providers(settings: OidcSettings) -> dict[str, ProviderSettings]:
    """By name, in the order of the file. Raises ProvidersError."""
    entries = _read_file(settings.providers_file)
    secrets = _read_secrets(settings.client_secrets)
    if unknown := sorted(secrets.keys() - entries.keys()):
        raise ProvidersError(f"{_SECRETS} names {', '.join(unknown)}, which {_FILE} does not describe")
    policy = AddressPolicy(exceptions=settings.allowed_addresses)
    if len({entry.issuer for entry in entries.values()}) < len(entries):
        raise ProvidersError("each provider needs an issuer of its own")
    return {name: _provider(name, entry, secrets.get(name), policy, settings) for name, entry in entries.items()}


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
    if entry.roles and entry.groups_claim is None:
        raise ProvidersError(f"{name}: roles need groups_claim.")
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
        return msgspec.json.decode(text, type=dict[str, Secret])
    except msgspec.MsgspecError:
        raise ProvidersError(f'{_SECRETS} is not JSON such as {{"corporate": "…"}}') from None

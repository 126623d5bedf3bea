"""The file with the providers, and their secrets."""

from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest

from quarterdeck.core.settings import OidcSettings, SettingsError, read_settings
from quarterdeck.openid.model import Claims, GroupRole, OpenIdError, ProvidersError
from quarterdeck.openid.providers import Providers, read_providers
from tests.cli.command import qd
from tests.openid.real_provider import LOCAL
from tests.pages import blocks_of

_WORKSPACE = "0197a5b2-7c1e-7d39-8a5f-3f1f0f5b6c7d"
_ENTRY: dict[str, Any] = {"title": "Example Corp", "issuer": "https://login.example.com/a", "client_id": "quarterdeck"}


def described(folder: Path, entries: object, **fields: Any) -> OidcSettings:
    file = folder / "providers.yaml"
    file.write_bytes(entries if isinstance(entries, bytes) else msgspec.yaml.encode(entries))
    return OidcSettings(providers_file=str(file), **fields)


def test_without_a_file_there_are_none() -> None:
    assert read_providers(OidcSettings()) == {}
    providers = Providers(OidcSettings())
    assert providers.get("corporate") is None
    providers.close()


def test_the_least(tmp_path: Path) -> None:
    (found,) = read_providers(described(tmp_path, {"corporate": _ENTRY})).values()
    assert (found.name, found.title, found.issuer) == ("corporate", "Example Corp", "https://login.example.com/a")
    assert (found.client_secret, found.groups_claim, found.roles) == (None, None, ())
    assert found.scopes == ("openid", "profile", "email")
    assert (found.clock_skew_seconds, found.discovery_seconds, found.key_pause_seconds) == (60, 3600, 10)


def test_the_example_of_the_documentation(tmp_path: Path) -> None:
    (example,) = blocks_of("docs/run/openid.md", "yaml")
    settings = described(
        tmp_path, example.text.encode(), client_secrets='{"corporate": "s3cret"}', clock_skew_seconds=5.0
    )
    found = read_providers(settings)
    assert list(found) == ["corporate", "partners"]
    corporate = found["corporate"]
    assert corporate.client_secret == "s3cret"
    assert "s3cret" not in repr(corporate)
    assert corporate.groups_claim == "groups"
    assert corporate.roles[0] == GroupRole("engineering", UUID(_WORKSPACE), "member")
    assert corporate.clock_skew_seconds == 5


def test_a_private_issuer_needs_the_operators_permission(tmp_path: Path) -> None:
    entries = {"corporate": _ENTRY | {"issuer": "http://127.0.0.1:8080"}}
    with pytest.raises(ProvidersError, match="corporate: issuer must start with https"):
        read_providers(described(tmp_path, entries))
    settings = described(tmp_path, entries, allowed_addresses=LOCAL)
    assert read_providers(settings)["corporate"].issuer == "http://127.0.0.1:8080"
    providers = Providers(settings)
    found = providers.get("corporate")
    assert found is not None
    assert found is providers.get("corporate")
    assert providers.get("another") is None
    providers.close()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"issuer": "login.example.com"}, "issuer must be https"),
        ({"issuer": "https://10.0.0.1"}, "issuer must have a public address"),
        ({"issuer": "https://login.example.com?tenant=1"}, "no query"),
        ({"issuer": None}, "Expected `str`"),
        ({"title": ""}, "length >= 1"),
        ({"client_id": ""}, "length >= 1"),
        ({"client_secret": ""}, "length >= 1"),
        ({"client_secrets": "x"}, "unknown field `client_secrets`"),
        ({"scopes": ["profile"]}, "must contain openid"),
        ({"scopes": ["openid", "two words"]}, "matching regex"),
        ({"authorization_parameters": {"state": "x"}}, "must not contain state"),
        ({"client_authentication": "private_key_jwt"}, "Invalid enum value"),
        ({"roles": [{"group": "a", "workspace_id": "x", "role": "member"}]}, "Invalid UUID"),
        ({"roles": [{"group": "a", "workspace_id": _WORKSPACE, "role": "root"}]}, "Invalid enum value 'root'"),
        ({"roles": [{"group": "a", "role": "member"}]}, "missing required field `workspace_id`"),
        ({"roles": [f"a={_WORKSPACE}:member"]}, "Expected `object`"),
    ],
)
def test_invalid_entries(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ProvidersError, match=message):
        read_providers(described(tmp_path, {"corporate": _ENTRY | changes}))


@pytest.mark.parametrize("name", ["", "Corporate", "a b", "-a", "a\n", "a/b", "ä", "a" * 33])
def test_invalid_names(tmp_path: Path, name: str) -> None:
    with pytest.raises(ProvidersError, match="does not describe providers"):
        read_providers(described(tmp_path, {name: _ENTRY}))


def test_secrets_are_in_one_place(tmp_path: Path) -> None:
    entries = {"corporate": _ENTRY | {"client_secret": "in-the-file"}}
    assert read_providers(described(tmp_path, entries))["corporate"].client_secret == "in-the-file"
    with pytest.raises(ProvidersError, match="in the file and in QUARTERDECK_OIDC_CLIENT_SECRETS") as refused:
        read_providers(described(tmp_path, entries, client_secrets='{"corporate": "outside"}'))
    assert "outside" not in str(refused.value)
    with pytest.raises(ProvidersError, match="names partners, which QUARTERDECK_OIDC_PROVIDERS_FILE does not"):
        read_providers(described(tmp_path, entries, client_secrets='{"partners": "x"}'))
    for text in ("s3cret", '{"corporate": 5}', '["s3cret"]', '{"corporate": ""}'):
        with pytest.raises(ProvidersError, match="is not JSON such as") as refused:
            read_providers(described(tmp_path, entries, client_secrets=text))
        assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"corporate:\n  client_secret: s3cret\n  title: [", r"is not YAML \(line [34]\)"),
        (b"client_secret: s3cret\n\xff", "is not YAML"),
        (b"- client_secret: s3cret", "does not describe providers"),
        (b"#" * (1024 * 1024 + 1), "is larger than"),
    ],
)
def test_files_that_are_none(tmp_path: Path, text: bytes, message: str) -> None:
    with pytest.raises(ProvidersError, match=message) as refused:
        read_providers(described(tmp_path, text))
    assert "s3cret" not in str(refused.value)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ProvidersError, match="cannot be read: No such file"):
        read_providers(OidcSettings(providers_file=str(tmp_path / "missing")))
    assert read_providers(described(tmp_path, b"")) == {}


@pytest.mark.long
@pytest.mark.parametrize("command", ["serve", "api"])
def test_an_invalid_file_stops_the_start(tmp_path: Path, command: str) -> None:
    missing = tmp_path / "missing.yaml"
    ended = qd(command, "--data", str(tmp_path / "data"), "--port", "0", OIDC_PROVIDERS_FILE=str(missing))
    assert ended.returncode != 0
    reason = f"{missing} cannot be read: No such file or directory"
    assert ended.stderr == f"qd: OpenID providers: {reason} (docs/run/openid.md)\n"
    assert not (tmp_path / "data").exists()


def test_settings() -> None:
    found = read_settings({"QUARTERDECK_OIDC_CLIENT_SECRETS": "{}", "QUARTERDECK_OIDC_CLOCK_SKEW_SECONDS": "0"}).oidc
    assert (found.client_secrets, found.clock_skew_seconds) == ("{}", 0)
    for name, value in {"CLOCK_SKEW_SECONDS": "601", "REQUEST_SECONDS": "61", "ALLOWED_ADDRESSES": "x"}.items():
        with pytest.raises(SettingsError, match=f"QUARTERDECK_OIDC_{name}"):
            read_settings({f"QUARTERDECK_OIDC_{name}": value})


def test_errors_are_short() -> None:
    fault = OpenIdError("x" * 1000, is_temporary=True)
    assert (len(str(fault)), len(fault.detail)) == (300, 300)


def test_tokens_are_not_shown() -> None:
    shown = repr(
        Claims(
            issuer="https://login.example.com",
            subject="1",
            email=None,
            is_email_verified=False,
            name=None,
            groups=frozenset(),
            refresh_token="s3cret",
            id_token="s3cret",
            sid=None,
        )
    )
    assert "s3cret" not in shown

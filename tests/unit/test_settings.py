"""Settings: read from the environment alone, all faults at once, each documented."""

import re
from pathlib import Path

import msgspec
import pytest

from quarterdeck.cli.database import with_server
from quarterdeck.core.settings import (
    Settings,
    SettingsError,
    read_settings,
    variable,
    variables,
)

DOCS = Path(__file__).parents[2] / "docs" / "run" / "configuration.md"
_ROW = re.compile(r"^\| `(QUARTERDECK_[A-Z0-9_]+)` \| (.+?) \| (.+?) \|$", re.MULTILINE)


def defaults() -> dict[str, object]:
    built = msgspec.to_builtins(Settings())
    return {variable(section, field): value for section, fields in built.items() for field, value in fields.items()}


def test_defaults_apply_without_variables() -> None:
    assert read_settings({}) == Settings()
    assert read_settings({"PATH": "/bin", "QUARTERDECK": "x", "quarterdeck_server_port": "1"}) == Settings()


def test_every_variable_is_read() -> None:
    """Each default, written as text, is understood as itself."""
    given = {name: str(value) for name, value in defaults().items() if value is not None}
    assert set(given) <= set(variables())
    assert read_settings(given) == Settings()
    assert read_settings({"QUARTERDECK_HTTP_BODY_SECONDS": "2.5"}).http.body_seconds == 2.5
    assert read_settings({"QUARTERDECK_DATABASE_URL": "postgresql://h/d"}).database.url == "postgresql://h/d"


def test_empty_variable_means_unset() -> None:
    assert read_settings(dict.fromkeys(variables(), "")) == Settings()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("QUARTERDECK_SERVER_PORT", "65536"),
        ("QUARTERDECK_SERVER_PORT", "-1"),
        ("QUARTERDECK_SERVER_PORT", "http"),
        ("QUARTERDECK_SERVER_PORT", "８７００"),
        ("QUARTERDECK_SERVER_PORT", " 8700"),
        ("QUARTERDECK_SERVER_PROCESSES", "0"),
        ("QUARTERDECK_HTTP_BODY_SECONDS", "0"),
        ("QUARTERDECK_HTTP_BODY_SECONDS", "-1"),
        ("QUARTERDECK_HTTP_BODY_SECONDS", "nan"),
        ("QUARTERDECK_HTTP_BODY_SECONDS", "inf"),
        ("QUARTERDECK_HTTP_BODY_SECONDS", "1e300"),
        ("QUARTERDECK_HTTP_BODY_SECONDS", "60s"),
        ("QUARTERDECK_HTTP_JSON_BODY_BYTES", "1MB"),
        ("QUARTERDECK_HTTP_JSON_BODY_BYTES", "1.5"),
        ("QUARTERDECK_HTTP_MIN_CLIENT_VERSION", "1.x"),
        ("QUARTERDECK_HTTP_MIN_CLIENT_VERSION", "v1"),
        ("QUARTERDECK_MODEL_NAMES", "openai:gpt,claude"),
        *(
            ("QUARTERDECK_HTTP_CORS_ORIGINS", text)
            for text in (
                "*",
                "null",
                "app.example.com",
                "https://",
                "https://app.example.com/",
                "https://app.example.com/path",
                "https://*.example.com",
                "https://user@example.com",
                "https://App.example.com",
                "https://app.example.com:443",
                "http://app.example.com:80",
                "https://app.example.com:",
                "https://app.example.com:x",
                "https://app.example.com,",
                "https://app.example.com https://b.example.com",
            )
        ),
        *(
            ("QUARTERDECK_HTTP_TRUSTED_PROXIES", text)
            for text in ("10.0.0.1/8", "10.0.0.0/33", "proxy", "*", "10.0.0.1,", "10.0.0.1 10.0.0.2")
        ),
        ("QUARTERDECK_LIMIT_CREDENTIAL_PER_MINUTE", "-1"),
        ("QUARTERDECK_LIMIT_CREDENTIAL_PER_MINUTE", "1000001"),
        ("QUARTERDECK_LIMIT_WORKSPACE_BURST", "0"),
        ("QUARTERDECK_RECEIPT_KEEP_DAYS", "6"),
        ("QUARTERDECK_KEY_ENVIRONMENT", "Live"),
        ("QUARTERDECK_KEY_ENVIRONMENT", "a_b"),
        ("QUARTERDECK_KEY_ENVIRONMENT", "a" * 17),
        ("QUARTERDECK_KEY_LAST_USED_FLUSH_SECONDS", "61"),
        *(
            ("QUARTERDECK_DATABASE_ROLE", text)
            for text in ("none", "public", "pg_monitor", "Quarterdeck", "a b", "a;b", "1a", "a" * 64)
        ),
        ("QUARTERDECK_LOG_LEVEL", "loud"),
    ],
)
def test_invalid_values_are_reported_by_name(name: str, text: str) -> None:
    with pytest.raises(SettingsError, match=name):
        read_settings({name: text})


def test_an_owner_without_a_database_is_refused() -> None:
    """It would be the embedded one that is served, in silence."""
    with pytest.raises(SettingsError, match="QUARTERDECK_DATABASE_OWNER_URL is set without QUARTERDECK_DATABASE_URL"):
        read_settings({"QUARTERDECK_DATABASE_OWNER_URL": "postgresql://h/d"})


@pytest.mark.parametrize("name", ["QUARTERDECK_SERVER_PORT", "QUARTERDECK_SERVER_HEALTH_PORT"])
def test_the_metrics_port_is_not_another_one(name: str) -> None:
    with pytest.raises(SettingsError, match="QUARTERDECK_METRICS_PORT must differ"):
        read_settings({"QUARTERDECK_METRICS_PORT": "9464", name: "9464"})


def test_all_errors_are_reported_together() -> None:
    given = {"QUARTERDECK_SERVER_PORT": "x", "QUARTERDECK_LOG_LEVEL": "x", "QUARTERDECK_HTTP_CONNECTIONS": "0"}
    with pytest.raises(SettingsError) as refused:
        read_settings(given)
    assert all(name in str(refused.value) for name in given)
    assert "\n" not in str(refused.value)


def test_lists_are_separated_by_commas() -> None:
    origins = "https://app.example.com, http://localhost:5173,http://[::1]:8000,tauri://localhost"
    read = read_settings(
        {"QUARTERDECK_HTTP_CORS_ORIGINS": origins, "QUARTERDECK_HTTP_TRUSTED_PROXIES": "::1, 10.0.0.0/8"}
    )
    assert read.http.cors_origins is not None
    assert sorted(read.http.cors_origins) == [
        "http://[::1]:8000",
        "http://localhost:5173",
        "https://app.example.com",
        "tauri://localhost",
    ]
    assert read.http.trusted_proxies is not None
    assert [str(network) for network in read.http.trusted_proxies] == ["::1/128", "10.0.0.0/8"]


def test_the_command_line_wins_over_the_environment() -> None:
    read = read_settings({"QUARTERDECK_SERVER_PORT": "1", "QUARTERDECK_SERVER_HOST": "::1"})
    assert with_server(read, port=2, host=None).server.port == 2
    assert with_server(read, port=2, host=None).server.host == "::1"
    assert with_server(read, port=None) == read
    with pytest.raises(SettingsError):
        with_server(read, port=70_000)


def test_the_data_directory_is_absolute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    assert Settings().data_dir.is_absolute()
    assert read_settings({"QUARTERDECK_SERVER_DATA_DIR": "~/qd"}).data_dir == Path("/home/somebody/qd")


# --- the document ---


def documented() -> dict[str, tuple[str, str]]:
    return {name: (default, meaning) for name, default, meaning in _ROW.findall(DOCS.read_text())}


def test_every_variable_is_documented_and_nothing_else() -> None:
    rows = [name for name, _, _ in _ROW.findall(DOCS.read_text())]
    assert sorted(rows) == sorted(variables())
    assert rows == variables(), "in the order of the code"


def test_the_documented_defaults_are_the_real_ones() -> None:
    for name, (default, meaning) in documented().items():
        value = defaults()[name]
        shown = "none" if value is None else f"`{value:g}`" if isinstance(value, float) else f"`{value}`"
        assert default == shown, name
        assert meaning.endswith("."), name

"""Which server and key a command uses."""

from pathlib import Path

import pytest

from quarterdeck.cli import connection
from quarterdeck.cli.connection import LOCAL_URL, ConnectionInfo, Login, connect
from quarterdeck.cli.errors import CliError

STORED = Login("https://stored.example", "stored-key", "stored-workspace")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "profiles_file", lambda: tmp_path / "config" / "profiles.json")


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, ConnectionInfo(STORED.url, STORED.key, STORED.workspace, "default")),
        ({"WORKSPACE": "w"}, ConnectionInfo(STORED.url, STORED.key, "w", "default")),
        # Another key may belong to another workspace.
        ({"KEY": "k"}, ConnectionInfo(STORED.url, "k", None, "default")),
        ({"URL": "https://u", "KEY": "k"}, ConnectionInfo("https://u", "k", None, None)),
        ({"URL": f"{STORED.url}/"}, ConnectionInfo(STORED.url, STORED.key, STORED.workspace, "default")),
        ({"URL": "", "KEY": ""}, ConnectionInfo(STORED.url, STORED.key, STORED.workspace, "default")),
    ],
    ids=["nothing", "workspace", "key", "url and key", "its own url", "empty"],
)
def test_the_environment_overrides_the_profile(environ: dict[str, str], expected: ConnectionInfo) -> None:
    connection.save_profile("default", STORED)
    assert connect(None, {f"QD_{name}": value for name, value in environ.items()}) == expected


def test_a_named_profile_overrides_the_environment() -> None:
    connection.save_profile("work", STORED)
    found = connect("work", {"QD_URL": "https://u", "QD_KEY": "k", "QD_WORKSPACE": "w"})
    assert found == ConnectionInfo(STORED.url, STORED.key, STORED.workspace, "work")


def test_without_a_profile() -> None:
    assert connect(None, {"QD_KEY": "k"}) == ConnectionInfo(LOCAL_URL, "k", None, None)
    with pytest.raises(CliError, match="Not logged in"):
        connect(None, {})
    with pytest.raises(CliError, match="No profile named work"):
        connect(None, {"QD_PROFILE": "work", "QD_KEY": "k"})


def test_repr_does_not_show_the_key() -> None:
    connection.save_profile("default", STORED)
    assert STORED.key not in f"{STORED!r} {connect(None, {})!r}"

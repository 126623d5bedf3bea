"""`qd admin`, `qd migrate` and `qd sweep`, on a folder with and without a server, and on a URL."""

import base64
import json
import subprocess
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import psycopg
import pytest

from quarterdeck.core.secret_encryption import SecretCipher
from quarterdeck.core.settings import EncryptionSettings
from tests.cli.command import qd, qd_here, qd_serve
from tests.world import app_url

# The same in every process of a parallel run.
SOME_ID = UUID("8c9f0f5e-3d5a-4f0e-9b1a-2f6f0c1d7e55")

EVERY = [part for name in ("workspace.read", "key.manage", "session.manage", "skill.manage")
         for part in ("--permission", name)]  # fmt: skip


def admin(*arguments: str, **settings: str) -> Any:
    done = qd_here("admin", *arguments, "--json", **settings)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.long
def test_on_a_folder_without_and_with_a_server(tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "data"))
    refused = qd_here("admin", "create-workspace", "--name", "Team", "--owner-email", "owner@example.com", *data)
    is_one_line_and_exit_code_2(refused, f"No database in {tmp_path / 'data'}. Choose the data folder with --data DIR")
    assert not (tmp_path / "data").exists()
    assert qd_here("migrate", *data).stdout.startswith("Applied: ")
    workspace = admin("create-workspace", "--name", "Team", "--owner-email", "owner@example.com", *data)["id"]
    UUID(workspace)
    with qd_serve(tmp_path / "data", tmp_path / "output") as serving:
        assert "QD_KEY" not in serving.output.read_text(), "a database with a workspace has started before"
        key = admin("create-key", "--workspace", workspace, "--label", "ci", *EVERY, *data)
        assert key["created_by"]["primary_email"] == "owner@example.com"
        headers = {"Authorization": f"Bearer {key['secret']}", "Service-Workspace": workspace}
        (listed,) = httpx.get(f"{serving.url}/v1/api-keys", headers=headers, timeout=60).json()["items"]
        assert listed["id"] == key["id"]
        assert key.keys() - listed.keys() == {"secret"}


def test_members_and_their_keys(database_url: str) -> None:
    settings = {"DATABASE_URL": database_url}
    workspace = admin("create-workspace", "--name", "Team", "--owner-email", "o@example.com", **settings)["id"]
    assert admin("add-member", "--workspace", workspace, "--email", "Ann@example.com", **settings)["user_id"]
    label = ("--label", "hers", "--permission", "workspace.read", "--expires-at", "2999-01-31T12:00:00Z")
    key = admin("create-key", "--workspace", workspace, *label, "--as", "ann@example.com", **settings)
    assert key["created_by"]["primary_email"] == "Ann@example.com"
    assert key["expires_at"] == "2999-01-31T12:00:00Z"
    ended = admin("remove-member", "--workspace", workspace, "--email", "ann@example.com", **settings)
    assert [(one["id"], one["revoked_at"] is None) for one in ended["keys"]] == [(key["id"], False)]
    refused = qd_here("admin", "create-key", "--workspace", workspace, *label, "--as", "ann@example.com", **settings)
    assert (refused.returncode, refused.stderr) == (2, "qd: ann@example.com is not a member of this workspace.\n")


def test_a_workspace_is_changed_and_shown(database_url: str) -> None:
    settings = {"DATABASE_URL": database_url}
    first = admin("create-workspace", "--name", "Team", "--owner-email", "o@example.com", **settings)["id"]
    second = admin("create-workspace", "--name", "Others", "--owner-email", "p@example.com", **settings)["id"]
    ann = admin("add-member", "--workspace", first, "--email", "ann@example.com", **settings)["user_id"]
    named = admin("set-user", "--email", "ANN@example.com", "--display-name", "Ann Other", **settings)
    assert named == {"user_id": ann, "display_name": "Ann Other", "primary_email": "ann@example.com"}

    shown = admin("show-workspace", "--workspace", first, **settings)
    assert (shown["id"], shown["name"], shown["max_key_days"]) == (first, "Team", None)
    assert shown["owner"]["primary_email"] == "o@example.com"
    change = ("change-workspace", "--workspace", first)
    changed = admin(*change, "--name", "Crew", "--max-key-days", "90", "--owner", "Ann@example.com", **settings)
    assert changed == shown | {"name": "Crew", "max_key_days": 90, "owner": named, "revision": 3}
    assert admin(*change, "--name", "Team", **settings) == changed | {"name": "Team", "revision": 4}
    assert admin(*change, "--name", "Team", **settings)["revision"] == 4, "nothing changed"
    removed = changed | {"name": "Team", "max_key_days": None, "revision": 5}
    assert admin(*change, "--no-max-key-days", **settings) == removed
    limited = admin(*change, "--daily-max-cost-usd", "20.5", "--daily-max-tokens", "9000", **settings)
    assert limited["limits"] == {"day": {"max_cost_usd": 20.5, "max_tokens": 9000}}
    limited = admin(*change, "--no-daily-max-cost-usd", **settings)
    assert limited["limits"] == {"day": {"max_cost_usd": None, "max_tokens": 9000}}
    assert admin("show-workspace", "--workspace", first, **settings)["max_key_days"] is None

    listed = admin("list-workspaces", **settings)["items"]
    assert [(one["id"], one["name"]) for one in listed] == [(first, "Team"), (second, "Others")]
    admin("remove-member", "--workspace", first, "--email", "o@example.com", **settings)
    members = admin("list-members", "--workspace", first, **settings)["items"]
    assert [(one["user"]["primary_email"], one["role"], one["ended_at"] is None) for one in members] == [
        ("o@example.com", "admin", False),
        ("ann@example.com", "owner", True),
    ]
    assert admin("set-user", "--email", "ann@example.com", "--no-display-name", **settings)["display_name"] is None


@pytest.mark.long
def test_output_for_people(database_url: str) -> None:
    settings = {"DATABASE_URL": database_url}
    assert qd_here("admin", "list-workspaces", **settings).stdout == "No workspaces.\n"
    workspace = admin("create-workspace", "--name", "Team", "--owner-email", "o@example.com", **settings)["id"]
    shown = f"workspace {workspace}\nname Team\nowner o@example.com\nmaximum key lifetime "
    limits = "maximum cost per day {}\nmaximum tokens per day {}\nretention {}\n"
    printed = qd_here("admin", "show-workspace", "--workspace", workspace, **settings).stdout
    assert printed == f"{shown}none\n{limits.format('none', 'none', 'default')}"
    options = ["--max-key-days", "30", "--daily-max-cost-usd", "20", "--daily-max-tokens", "1000000"]
    options += ["--retention", "events=30", "--retention", "runs=90", "--retention", "files=default"]
    changed = qd_here("admin", "change-workspace", "--workspace", workspace, *options, **settings)
    assert changed.stdout == f"{shown}30 days\n{limits.format('$20.00', '1,000,000', 'runs=90, events=30')}"
    short = qd_here("admin", "change-workspace", "--workspace", workspace, "--retention", "receipts=6", **settings)
    assert (short.returncode, "`int` >= 7" in short.stderr) == (2, True), "receipts are promised for a week"
    assert qd_here("admin", "list-workspaces", **settings).stdout == f"{workspace}  o@example.com  Team\n"
    (member,) = qd_here("admin", "list-members", "--workspace", workspace, **settings).stdout.splitlines()
    assert member.endswith("  owner  o@example.com")


@pytest.mark.long
def test_the_first_start_and_every_command_are_in_the_audit_log(tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "data"))
    with qd_serve(tmp_path / "data", tmp_path / "output") as serving:
        workspace, key = serving.exported("QD_WORKSPACE"), serving.exported("QD_KEY")
        admin("change-workspace", "--workspace", workspace, "--name", "Crew", *data)
        headers = {"Authorization": f"Bearer {key}"}
        page = httpx.get(f"{serving.url}/v1/audit-events?order=asc", headers=headers, timeout=60).json()
        assert httpx.get(f"{serving.url}/v1/workspace", headers=headers, timeout=60).json()["name"] == "Crew"
    events = [(one["action"], one["actor"], one["detail"]) for one in page["items"]]
    first_start = ["create_workspace", "set_user", "create_api_key", "create_account_link"]
    assert [action for action, _, _ in events] == [*first_start, "change_workspace"]
    assert {actor for _, actor, _ in events} == {None}
    assert events[-1][2] == {"name": "Crew"}


def is_one_line_and_exit_code_2(done: "subprocess.CompletedProcess[str]", says: str) -> None:
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert says in done.stderr


def test_a_wrong_value_ends_the_process_with_code_2() -> None:
    is_one_line_and_exit_code_2(qd("nonsense"), "No such command")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["serve", "--port", "70000"], "65535"),
        (["serve", "--port", "x"], "--port"),
        (["admin", "create-workspace", "--name", "x\udcff", "--owner-email", "a@b.c"], "UTF-8"),
        (["admin", "show-workspace", "--workspace", str(SOME_ID)], "no workspace"),
        (["admin", "create-workspace", "--name", "x"], "--owner-email"),
        (["admin", "create-workspace", "--name", "x", "--owner-email", "nobody"], "email address"),
        (["admin", "create-workspace", "--name", "", "--owner-email", "a@b.c"], "--name"),
        (["admin", "create-workspace", "--name", "a\nb", "--owner-email", "a@b.c"], "--name"),
        (["admin", "create-key", "--workspace", "x", "--label", "l", "--permission", "workspace.read"], "UUID"),
        (["admin", "create-key", "--workspace", str(SOME_ID), "--label", "l"], "--permission"),
        (["admin", "create-key", "--workspace", str(SOME_ID), "--label", "l", "--permission", "all"], "skill.manage"),
        (["admin", "create-key", "--workspace", str(SOME_ID), "--label", "l", *EVERY], "no workspace"),
        (["admin", "create-key", "--workspace", str(SOME_ID), "--label", "l", *EVERY, "--expires-at", "soon"], "date"),
        (["admin", "create-key", "--workspace", str(SOME_ID), "--label", "l", *EVERY, "--expires-at", "2020-01-01"],
         "past"),
        (["migrate", "--data", ""], "data_dir"),
        (["admin", "add-member", "--workspace", str(SOME_ID), "--email", "a@b.c"], "no workspace"),
        (["admin", "list-members", "--workspace", str(SOME_ID)], "no workspace"),
        (["admin", "change-workspace", "--workspace", str(SOME_ID)], "Nothing to change"),
        (["admin", "change-workspace", "--workspace", str(SOME_ID), "--name", "x"], "no workspace"),
        (["admin", "change-workspace", "--workspace", str(SOME_ID), "--name", ""], "--name"),
        (["admin", "change-workspace", "--workspace", str(SOME_ID), "--max-key-days", "0"], "--max-key-days"),
        (["admin", "change-workspace", "--workspace", str(SOME_ID), "--max-key-days", "2147483648"], "36500"),
        (["admin", "change-workspace", "--workspace", str(SOME_ID), "--max-key-days", "9", "--no-max-key-days"],
         "Use either"),
        (["admin", "change-workspace", "--workspace", str(SOME_ID), "--owner", "nobody"], "email address"),
        (["admin", "set-user", "--email", "a@b.c"], "--display-name"),
        (["admin", "set-user", "--email", "a@b.c", "--display-name", "A", "--no-display-name"], "either"),
        (["admin", "set-user", "--email", "a@b.c", "--display-name", "A\nB"], "--display-name"),
        (["admin", "set-user", "--email", "a@b.c", "--display-name", "A"], "a@b.c"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_one_line_and_exit_code_2(
    untouched_database_url: str, arguments: list[str], says: str
) -> None:
    is_one_line_and_exit_code_2(qd_here(*arguments, DATABASE_URL=untouched_database_url), says)


def test_wrong_settings_are_named_together() -> None:
    done = qd_here("serve", SERVER_PORT="x", HTTP_BODY_SECONDS="0", KEY_ENVIRONMENT="Not ok")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    for name in ("QUARTERDECK_SERVER_PORT", "QUARTERDECK_HTTP_BODY_SECONDS", "QUARTERDECK_KEY_ENVIRONMENT"):
        assert name in done.stderr


def test_unknown_variables_are_warnings(database_url: str) -> None:
    variables = {"SERVR_PORT": "secret", "OTHER": "secret", "TEST_DATABASE_URL": "x", "LIFELINE_FDS": "x"}
    for command in (["migrate"], ["sweep"], ["admin", "list-workspaces"]):
        done = qd_here(*command, DATABASE_URL=database_url, **variables)
        assert (done.returncode, done.stderr.splitlines()) == (
            0,
            [
                "qd: warning: unknown variable QUARTERDECK_OTHER. docs/run/configuration.md lists all settings.",
                "qd: warning: unknown variable QUARTERDECK_SERVR_PORT. Did you mean QUARTERDECK_SERVER_PORT?",
            ],
        )


@pytest.mark.parametrize(
    "command", [["migrate"], ["sweep"], ["admin", "create-workspace", "--name", "x", "--owner-email", "a@b.c"]]
)
def test_an_unreachable_database_is_one_line(command: list[str]) -> None:
    done = qd_here(*command, DATABASE_URL="postgresql://nobody@127.0.0.1:1/none")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


@pytest.mark.long
def test_migrate_and_sweep(database_url: str, tmp_path: Path) -> None:
    settings = {"DATABASE_URL": database_url, "SERVER_DATA_DIR": str(tmp_path)}
    assert qd_here("migrate", **settings).stdout == "The schema is up to date.\n"
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("REVOKE INSERT (label), INSERT (prefix) ON app.api_keys FROM quarterdeck_app")
        connection.execute("GRANT DELETE ON app.api_keys TO quarterdeck_app")
        role = "the role quarterdeck_app"
        assert qd_here("migrate", **settings).stdout == (
            f"The schema is up to date.\nRestored 2 privileges of {role}.\n"
            f"Revoked 1 privileges of {role} that this release does not need.\n"
        )
        connection.execute(
            "INSERT INTO app.receipts (scope_id, operation, key, fingerprint, body, created_at)"
            " SELECT gen_random_uuid(), 'x', n::text, '', '', now() - make_interval(days => 6 + n % 3)"
            " FROM generate_series(1, 30) n"
        )
    done = qd_here("sweep", **settings, RECEIPT_SWEEP_BATCH="3")
    # Ages of 6, 7 and 8 days: kept, due by less than the minute that is added for safety, removed.
    removed = (
        "Deleted {} receipts, 0 audit events, 0 runs, 0 events, 0 files, 0 blobs, 0 sessions, 0 deliveries, 0 usage, "
        "0 sign ins\n"
    )
    assert (done.returncode, done.stdout) == (0, removed.format(10)), done.stderr
    assert qd_here("sweep", **settings).stdout == removed.format(0)


def test_with_two_addresses_the_owners_is_needed_to_migrate_only(database_url: str) -> None:
    weak = {"DATABASE_URL": app_url(database_url)}
    both = weak | {"DATABASE_OWNER_URL": database_url}
    assert qd_here("migrate", **both, AUDIT_KEEP_DAYS="3650").returncode == 0
    assert qd_here("migrate", **both).returncode == 0
    created = qd_here("admin", "create-workspace", "--name", "x", "--owner-email", "a@example.com", **weak)
    assert created.returncode == 0, created.stderr
    with psycopg.connect(database_url, autocommit=True) as connection:
        kept = connection.execute("SELECT keep_days FROM app.audit_retention").fetchall()
        assert kept == [(3650,)], "a command without the settings of the service does not shorten the log"
        connection.execute("DELETE FROM app.migrations WHERE name = 'schema/17_changes'")
    refused = qd_here("admin", "list-workspaces", **weak)
    assert refused.returncode == 2
    assert "QUARTERDECK_DATABASE_OWNER_URL" in refused.stderr


@pytest.mark.parametrize("url", ["postgresql://u:hunter2@[::1/db", "postgresql://u:hun%ter2@h/db", "nonsense hunter2"])
@pytest.mark.parametrize("command", ["migrate", "api"])
def test_a_malformed_database_url_is_not_quoted(url: str, command: str) -> None:
    done = qd_here(command, DATABASE_URL=url)
    assert (done.returncode, done.stderr) == (
        2,
        "qd: QUARTERDECK_DATABASE_URL (or _DIRECT_URL or _OWNER_URL) is not a PostgreSQL URL\n",
    )


def test_invalid_blob_store(database_url: str) -> None:
    done = qd_here("sweep", DATABASE_URL=database_url, BLOB_STORE_URL="nope://x")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "QUARTERDECK_BLOB_STORE_URL" in done.stderr


def test_reencrypt_secrets(database_url: str, tmp_path: Path) -> None:
    old, new, other = (base64.b64encode(bytes([number]) * 32).decode() for number in (1, 2, 3))
    settings = {"DATABASE_URL": database_url, "SERVER_DATA_DIR": str(tmp_path)}
    workspace = admin("create-workspace", "--name", "Team", "--owner-email", "owner@example.com", **settings)["id"]
    cipher = SecretCipher(EncryptionSettings(keys=old), tmp_path)
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO app.webhooks (id, workspace_id, url, host, events, secret, previous_secret,"
            " previous_secret_expires_at, created_by) SELECT %s, id, 'u', 'h', '{}', %s, %s, now(), owner_id"
            " FROM app.workspaces WHERE id = %s",
            (SOME_ID, cipher.encrypt(SOME_ID, b"now"), cipher.encrypt(SOME_ID, b"before"), workspace),
        )
        connection.execute(
            "INSERT INTO app.credentials (id, workspace_id, name, kind, secret, created_by)"
            " SELECT %s, id, 'n', 'bearer', %s, owner_id FROM app.workspaces WHERE id = %s",
            (SOME_ID, cipher.encrypt(SOME_ID, b"of a credential"), workspace),
        )
    for keys in (other, "nonsense", f"{new},{other}"):
        done = qd_here("admin", "reencrypt-secrets", **settings, ENCRYPTION_KEYS=keys)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert keys not in done.stderr
    both = settings | {"ENCRYPTION_KEYS": f"{new},{old}"}
    assert qd_here("admin", "reencrypt-secrets", **both).stdout == "Re-encrypted 2 secrets.\n"
    assert admin("reencrypt-secrets", **both) == {"reencrypted": 0}
    with psycopg.connect(database_url, autocommit=True) as connection:
        ((secret, previous),) = connection.execute("SELECT secret, previous_secret FROM app.webhooks").fetchall()
        ((of_credential,),) = connection.execute("SELECT secret FROM app.credentials").fetchall()
    cipher = SecretCipher(EncryptionSettings(keys=new), tmp_path)
    assert (cipher.decrypt(SOME_ID, secret), cipher.decrypt(SOME_ID, previous)) == (b"now", b"before")
    assert cipher.decrypt(SOME_ID, of_credential) == b"of a credential"

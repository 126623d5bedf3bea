"""`qd admin backup` and `qd admin restore`: everything comes back, and what cannot be restored changes nothing."""

import asyncio
import base64
import hashlib
import json
import random
import stat
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import obstore
import psycopg
import pytest

from quarterdeck.backups.backup_file import create_backup
from quarterdeck.core.secret_encryption import SecretCipher
from quarterdeck.core.settings import EncryptionSettings
from quarterdeck.db import migrate as migrations
from quarterdeck.db.table_data import begin_snapshot, connect, read_table, sequences, tables
from tests.cli.command import qd_here, qd_serve
from tests.contract.test_object_store import objects, s3  # noqa: F401 - fixtures
from tests.object_store import BUCKET, bucket
from tests.world import Server, World, app_url, bundle, clone_database, drop_database, serving

OK = 0
REFUSED = 2


_SESSION_FILE = """
INSERT INTO session_files (session_id, path, kind, sha256, bytes, mode, modified_at)
VALUES (%s, 'a.txt', 'file', %s, 14, 420, now())
"""


@pytest.fixture(scope="module")
def server(postgres_url: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Not the shared one: a backup has everything, and other tests leave contents that cannot be read."""
    url = clone_database(postgres_url, template)
    with serving(url, tmp_path_factory.mktemp("data")) as server:
        yield server
    drop_database(postgres_url, url)


def contents(url: str) -> dict[str, Any]:
    """Every table as COPY writes it, in the order of its text, and the sequences."""
    with connect(url) as connection:
        found: dict[str, Any] = {
            table.name: sorted(b"".join(read_table(connection, table)).splitlines()) for table in tables(connection)
        }
        return found | {"sequences": sequences(connection)}


def structure(url: str) -> list[tuple[Any, ...]]:
    """Constraints, triggers and privileges of all tables."""
    query = """
    SELECT conrelid::regclass::text, conname::text, pg_get_constraintdef(oid) || convalidated FROM pg_constraint
    WHERE connamespace = 'app'::regnamespace
    UNION ALL SELECT tgrelid::regclass::text, tgname::text, tgenabled::text FROM pg_trigger WHERE NOT tgisinternal
    UNION ALL SELECT oid::regclass::text, relname::text, array(SELECT a::text FROM unnest(relacl) a ORDER BY 1)::text
    FROM pg_class WHERE relnamespace = 'app'::regnamespace
    ORDER BY 1, 2, 3
    """
    with connect(url) as connection:
        return connection.execute(query.encode()).fetchall()


def schemas(url: str) -> set[str]:
    with connect(url) as connection:
        return {name for (name,) in connection.execute("SELECT nspname FROM pg_namespace").fetchall()} & {"app", "jobs"}


async def command(*arguments: str, **settings: str) -> tuple[int, str, str]:
    """In a thread: commands run an event loop of their own."""
    done = await asyncio.to_thread(qd_here, "admin", *arguments, **settings)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.long
async def test_everything_comes_back(world: World, server: Server, empty_url: str, tmp_path: Path) -> None:
    session_id, skill_id = await world.new_session(), await world.new_skill()
    archives = [bundle(text=text) for text in ("first", "second")]
    archives.append(bundle(large=random.Random(1).randbytes(700_000).hex()))
    for archive in archives:
        assert (await world.push(skill_id, archive)).status_code == 201
    version = f"/v1/skills/{skill_id}/versions/3"
    await world.patch(f"/v1/skills/{skill_id}", {"default_version": 1})
    await world.submit(session_id, "line\nand tab\t\\N ü \x85", idempotency_key="k")
    await world.new_token(session_id)
    webhook_id = UUID(await world.new_webhook())
    uploaded = await world.new_file("kept.bin", b"kept \0")
    # Contents that only sessions refer to.
    for content, statement in (
        (b"in a session", _SESSION_FILE),
        (b"attached", "INSERT INTO session_attachments (session_id, sha256) VALUES (%s, %s)"),
    ):
        file_id = await world.new_file("deleted.bin", content)
        await world.execute(statement, session_id, hashlib.sha256(content).digest())
        assert (await world.delete(f"/v1/files/{file_id}")).status_code == 204

    file = tmp_path / "backup.qd"
    source = {"DATABASE_URL": server.database_url, "SERVER_DATA_DIR": str(server.data_dir)}
    code, out, err = await command("backup", str(file), "--json", **source)
    assert code == OK, err
    made = json.loads(out)
    assert (made["bytes"], made["encryption_keys"]) == (file.stat().st_size, True)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["backup.qd"]
    assert await command("backup", str(file), **source) == (
        REFUSED,
        "",
        f"qd: {file} already exists. Choose another name.\n",
    )

    target = {"DATABASE_URL": empty_url, "SERVER_DATA_DIR": str(tmp_path / "data")}
    code, out, err = await command("restore", str(file), **target)
    assert (code, f"Restored {made['rows']:,} rows and {made['blobs']:,} skill archives and files" in out) == (
        OK,
        True,
    ), err
    # The server's own processes go on writing to these.
    changing = {"app.api_keys", "app.blobs"}
    before, after = contents(server.database_url), contents(empty_url)
    assert {name for name in before if before[name] != after[name]} <= changing
    assert {name: len(after[name]) for name in changing} == {name: len(before[name]) for name in changing}
    assert structure(empty_url) == structure(server.database_url)
    ((secret,),) = await world.fetch("SELECT secret FROM webhooks WHERE id = %s", webhook_id)
    keys = SecretCipher(EncryptionSettings(), tmp_path / "data")
    assert keys.decrypt(webhook_id, secret) == SecretCipher(EncryptionSettings(), server.data_dir).decrypt(
        webhook_id, secret
    )

    paths = [
        "/v1/workspace",
        "/v1/sessions",
        "/v1/skills",
        "/v1/audit-events",
        "/v1/webhooks",
        f"{version}/file?path=large",
    ]
    paths += [f"/v1/sessions/{session_id}{rest}" for rest in ("", "/runs", "/events", "/tokens")]
    paths += [f"/v1/skills/{skill_id}/versions", f"/v1/skills/{skill_id}/diff?base=1&head=2"]
    with serving(empty_url, tmp_path / "data") as restored:
        async with httpx.AsyncClient(base_url=restored.url, timeout=60) as http:
            for path in paths:
                same = await http.get(path, headers=world.headers())
                assert (same.status_code, same.content) == (200, (await world.get(path)).content), path
            for number, archive in enumerate(archives, 1):
                path = f"/v1/skills/{skill_id}/versions/{number}/bundle"
                assert (await http.get(path, headers=world.headers())).content == archive
            path = f"/v1/files/{uploaded}/content"
            assert (await http.get(path, headers=world.headers())).content == b"kept \0"
            stored = {path.read_bytes() for path in (tmp_path / "data" / "blobs").rglob("*") if path.is_file()}
            assert {b"in a session", b"attached"} <= stored
            # It goes on where the backup ended: receipts hold, numbers are not used twice.
            body = {"type": "input", "text": "line\nand tab\t\\N ü \x85"}
            path, headers = f"/v1/sessions/{session_id}/events", world.headers()
            again = await http.post(path, json=body, headers=headers | {"Idempotency-Key": "k"})
            assert again.headers["idempotency-replayed"] == "true"
            assert (await http.post(path, json=body, headers=headers)).json()["outcome"] == "steered"
        refused = await command("restore", str(file), **target)
        assert (refused[0], "The database is not empty" in refused[2]) == (REFUSED, True), refused


Change = Callable[[dict[str, Any], dict[str, bytes]], None]


def rewrite(file: Path, target: Path, change: Change) -> Path:
    """A complete backup with another content."""
    with zipfile.ZipFile(file) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        entries = {name: archive.read(name) for name in archive.namelist() if name != "manifest.json"}
    change(manifest, entries)
    with create_backup(target) as writer:
        for name, content in entries.items():
            written = writer.add(name, [content], compress=True)
            for table in manifest["tables"]:
                if name == f"tables/{table['name']}.copy":
                    table |= {"bytes": written.bytes, "rows": written.rows, "sha256": written.sha256}
        writer.add("manifest.json", [json.dumps(manifest).encode()], compress=True)
    return target


def newer_migration(manifest: dict[str, Any], _: dict[str, bytes]) -> None:
    manifest["migrations"]["9999_later"] = "0" * 64


def newer_format(manifest: dict[str, Any], _: dict[str, bytes]) -> None:
    manifest |= {"format": 2, "release": "9.0.0"}


def no_users(_: dict[str, Any], entries: dict[str, bytes]) -> None:
    entries["tables/app.users.copy"] = b""


def damaged_archive(_: dict[str, Any], entries: dict[str, bytes]) -> None:
    name = next(name for name in entries if name.startswith("blobs/"))
    entries[name] = entries[name][:-1] + b"x"


@pytest.mark.long
async def test_what_cannot_be_restored_changes_nothing(
    world: World, server: Server, empty_url: str, tmp_path: Path
) -> None:
    await world.push(await world.new_skill(), bundle(text=uuid4().hex))
    await world.new_webhook()
    file, data = tmp_path / "backup.qd", tmp_path / "data"
    source = {"DATABASE_URL": server.database_url, "SERVER_DATA_DIR": str(server.data_dir)}
    target = {"DATABASE_URL": empty_url, "SERVER_DATA_DIR": str(data)}
    assert (await command("backup", str(file), **source))[0] == OK
    whole = file.read_bytes()
    half, torn, text = (tmp_path / name for name in ("half", "torn", "text"))
    half.write_bytes(whole[: len(whole) // 2])
    middle = whole.index(b"blobs/") + 400
    torn.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    text.write_text("not a backup")
    for path, says in [
        (half, "incomplete or damaged"),
        (torn, "incomplete or damaged"),
        (text, "incomplete or damaged"),
        (tmp_path / "missing", "No such file"),
        (rewrite(file, tmp_path / "newer", newer_migration), "newer release (9999_later)"),
        (rewrite(file, tmp_path / "format", newer_format), "newer release (9.0.0)"),
        (rewrite(file, tmp_path / "archive", damaged_archive), "does not match the manifest"),
    ]:
        code, out, err = await command("restore", str(path), **target)
        assert (code, out, err.count("\n"), says in err) == (REFUSED, "", 1, True), err
        assert not data.exists()
        assert schemas(empty_url) == set()

    # A fault that only the database notices, while it is loaded.
    code, _, err = await command("restore", str(rewrite(file, tmp_path / "no users", no_users)), **target)
    assert (code, "foreign key" in err) == (REFUSED, True), err
    assert [path for path in (data / "blobs").rglob("*") if path.is_file()] == []
    assert not (data / "encryption.keys").exists()
    assert not any(rows for name, rows in contents(empty_url).items())
    with psycopg.connect(empty_url):
        code, _, err = await command("restore", str(file), **target)
        assert (code, "Stop the server" in err) == (REFUSED, True), err
    code, _, err = await command("restore", str(file), **target)
    assert code == OK, err


@pytest.mark.long
async def test_missing_keys_are_named_and_no_others(database_url: str, empty_url: str, tmp_path: Path) -> None:
    data = tmp_path / "source"
    data.mkdir()
    with serving(database_url, data) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
            world = await World.create(database_url, http)
            await world.new_credential()
            await world.new_webhook()
            # The second restore finds it in the store.
            await world.new_file("empty", b"")
    file = tmp_path / "backup.qd"
    source = {"DATABASE_URL": database_url, "SERVER_DATA_DIR": str(data)}
    assert (await command("backup", str(file), "--no-encryption-keys", **source))[0] == OK
    key = (data / "encryption.keys").read_text().strip()
    other = base64.b64encode(bytes(32)).decode()
    for settings, says in [
        ({"ENCRYPTION_KEYS": key}, ""),
        ({"ENCRYPTION_KEYS": f"{other},{key}"}, ""),
        ({"ENCRYPTION_KEYS": other}, "Add it to QUARTERDECK_ENCRYPTION_KEYS."),
        ({}, f"Copy encryption.keys to {tmp_path} or set QUARTERDECK_ENCRYPTION_KEYS."),
    ]:
        with connect(empty_url) as connection:
            connection.execute("DROP SCHEMA IF EXISTS app CASCADE")
        target = {"DATABASE_URL": empty_url, "SERVER_DATA_DIR": str(tmp_path)}
        code, _, err = await command("restore", str(file), **target, **settings)
        assert (code, says in err, bool(err)) == (OK, True, bool(says)), err


@pytest.mark.long
async def test_what_cannot_be_backed_up_leaves_no_file(
    world: World, server: Server, empty_url: str, tmp_path: Path
) -> None:
    """Archives are also kept while a backup reads them."""
    archive = bundle(text=uuid4().hex)
    await world.push(await world.new_skill(), archive)
    file, data = tmp_path / "backup.qd", {"SERVER_DATA_DIR": str(server.data_dir)}
    for url, says in [
        (empty_url, "nothing to back up"),
        (app_url(server.database_url), "QUARTERDECK_DATABASE_OWNER_URL"),
    ]:
        code, _, err = await command("backup", str(file), DATABASE_URL=url, **data)
        assert (code, says in err) == (REFUSED, True), err
    code, _, err = await command(
        "backup", str(file), DATABASE_URL=server.database_url, SERVER_DATA_DIR=str(tmp_path / "x")
    )
    assert (code, "missing in the blob store" in err) == (REFUSED, True), err
    assert not file.exists()
    assert not file.with_name("backup.qd.part").exists()

    with connect(server.database_url) as backup:
        begin_snapshot(backup)
        await world.execute("UPDATE blobs SET touched_at = now() - interval '2 days'")
        await world.execute("DELETE FROM skill_version_contents")
        await world.execute(
            "DELETE FROM skill_versions WHERE skill_id IN (SELECT id FROM skills WHERE workspace_id = %s)",
            world.workspace_id,
        )
        assert (
            await asyncio.to_thread(lambda: qd_here("sweep", DATABASE_URL=server.database_url, **data).returncode) == OK
        )
        stored = [
            path for path in (server.data_dir / "blobs").rglob("*") if path.is_file() and path.read_bytes() == archive
        ]
        assert len(stored) == 1
    assert await asyncio.to_thread(lambda: qd_here("sweep", DATABASE_URL=server.database_url, **data).returncode) == OK
    assert not stored[0].exists()


def with_a_later_migration(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if this were the next release, whose migration changes the rows that a backup has."""
    script = migrations._Script("9998_later", "ALTER TABLE users ADD COLUMN later text NOT NULL DEFAULT 'x';")
    all_scripts = [*migrations._migrations(), script]
    monkeypatch.setattr(migrations, "_migrations", lambda: all_scripts)


@pytest.mark.long
@pytest.mark.usefixtures("s3")
async def test_from_an_object_store_and_an_earlier_release(
    database_url: str, empty_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = {"BLOB_STORE_URL": f"s3://{BUCKET}/first"}
    archive = bundle(noise=random.Random(2).randbytes(300_000).hex())
    with serving(database_url, tmp_path, **store) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
            world = await World.create(database_url, http)
            skill_id = await world.new_skill()
            await world.push(skill_id, archive)
    file = tmp_path / "backup.qd"
    code, _, err = await command("backup", str(file), DATABASE_URL=database_url, **store)
    assert code == OK, err
    # Into another prefix, by way of a database that was migrated already.
    second = {"BLOB_STORE_URL": f"s3://{BUCKET}/second", "SERVER_DATA_DIR": str(tmp_path)}
    assert (await asyncio.to_thread(qd_here, "migrate", DATABASE_URL=empty_url, **second)).returncode == OK
    code, _, err = await command("restore", str(file), DATABASE_URL=empty_url, **second)
    assert code == OK, err
    assert contents(empty_url) == contents(database_url)
    found = await obstore.list(bucket(), "second/").collect_async()
    assert len(archive) in [one["size"] for one in found]
    assert len(found) == 3, "the archive and its two files"
    with serving(empty_url, tmp_path, **second) as server:
        answer = httpx.get(f"{server.url}/v1/skills/{skill_id}/versions/1/bundle", headers=world.headers(), timeout=60)
        assert answer.content == archive

    with connect(empty_url) as connection:
        connection.execute("DROP SCHEMA app CASCADE")
    with_a_later_migration(monkeypatch)
    code, _, err = await command("restore", str(file), DATABASE_URL=database_url, **second)
    assert (code, "not empty" in err) == (REFUSED, True), err
    assert (await command("restore", str(file), DATABASE_URL=empty_url, **second))[0] == OK
    assert (await asyncio.to_thread(qd_here, "migrate", DATABASE_URL=empty_url)).stdout == "The schema is up to date.\n"
    with connect(empty_url) as connection:
        assert connection.execute("SELECT DISTINCT later FROM app.users").fetchall() == [("x",)]


@pytest.mark.long
def test_a_run_that_was_active_goes_on_in_a_restored_folder(tmp_path: Path) -> None:
    first, second, file = tmp_path / "first", tmp_path / "second", str(tmp_path / "backup.qd")
    archive = bundle()
    with qd_serve(first, tmp_path / "output") as serving:
        headers = {"Authorization": f"Bearer {serving.exported('QD_KEY')}"}
        with httpx.Client(base_url=serving.url, headers=headers, timeout=60) as http:
            skill = http.post("/v1/skills", json={"name": "demo"}).json()["id"]
            gzip = {"Content-Type": "application/gzip"}
            assert http.post(f"/v1/skills/{skill}/versions", content=archive, headers=gzip).status_code == 201
            session = http.post("/v1/sessions", json={}).json()["id"]
            body = {"type": "input", "text": "demo: slow 8"}
            run = http.post(f"/v1/sessions/{session}/events", json=body).json()["run_id"]
            wait_for(lambda: http.get(f"/v1/runs/{run}").json()["state"] == "running")
        done = qd_here("admin", "backup", file, "--data", str(first))
        assert (done.returncode, done.stderr) == (OK, ""), done.stderr
        done = qd_here("admin", "restore", file, "--data", str(first))
        assert (done.returncode, "not empty" in done.stderr) == (REFUSED, True), done.stderr
    done = qd_here("admin", "restore", file, "--data", str(second))
    assert done.returncode == OK, done.stderr
    with qd_serve(second, tmp_path / "output", WORKER_LEASE_SECONDS="1") as serving:
        with httpx.Client(base_url=serving.url, headers=headers, timeout=60) as http:
            assert http.get(f"/v1/skills/{skill}/versions/1/bundle").content == archive
            wait_for(lambda: http.get(f"/v1/runs/{run}").json()["state"] == "succeeded")
        assert "QD_KEY" not in serving.output.read_text(), "the workspace was restored"


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)

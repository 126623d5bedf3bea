"""After a run through the whole API, by API and worker processes: no secret anywhere but in the answer that made it."""

import base64
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from quarterdeck.server.data_directory import binary
from tests.contract.test_callers import SHARED, Objects, ids_for, request
from tests.people import PASSWORD, Browser, new_email
from tests.workers import at_rest, working
from tests.world import EVERY_PERMISSION, World, serving

# Each operation gets objects of its own.
MANY = {f"{section}_PER_WORKSPACE": 10_000 for section in ("CREDENTIAL", "MCP", "WEBHOOK")}
# In answers, these fields hold what is shown once.
SHOWN_ONCE = ("secret", "token", "device_code")


def shown_in(answer: httpx.Response) -> Iterator[str]:
    if answer.headers.get("content-type") == "application/json":
        body = answer.json()
        yield from (body[name] for name in SHOWN_ONCE if isinstance(body, dict) and body.get(name) is not None)


def forms(secret: str) -> Iterator[bytes]:
    """As it is, and as it would look in a column of bytes, in base64, or without its marker."""
    core = secret.rpartition("_")[2]
    for text in (secret, core):
        yield text.encode()
        yield text.encode().hex().encode()
        yield base64.b64encode(text.encode()).rstrip(b"=")
    if secret.startswith("whsec_"):
        # What signs is what the text stands for.
        raw = base64.b64decode(core)
        yield raw
        yield raw.hex().encode()


def dump(url: str) -> bytes:
    return subprocess.run([binary("pg_dump"), "--dbname", url], capture_output=True, check=True).stdout


async def call_everything(world: World, answers: list[httpx.Response]) -> None:
    """Each operation twice under one Idempotency-Key. Those that change something have objects of their own."""
    unchanged = (await Objects.make(world)).ids
    for operation in SHARED:
        ids = unchanged if operation.method == "GET" else await ids_for(world, operation)
        again = {"Idempotency-Key": f"all-{operation.name}"} if operation.idempotent else {}
        world.http.headers.update(again)
        for _ in range(2):
            answers.append(await request(world, operation, ids, world.key, str(world.workspace_id)))
        world.http.headers.pop("Idempotency-Key", None)
        # The worker may have consumed the input and ended the run.
        expected = {operation.success_status, 409 if operation.name in ("retry_run", "discard_input") else None}
        assert answers[-2].status_code in expected, (operation.name, answers[-2].text)


async def people_sign_in(world: World) -> str:
    """By an invitation, with a password and on the command line. Returns the secret in the cookie of the browser."""
    email = new_email()
    token = (await world.post("/v1/invitations", {"email": email})).json()["token"]
    browser = Browser(world)
    await browser.post("/v1/invitations/look-up", {"token": token})
    await browser.post("/v1/invitations/accept", {"token": token, "password": PASSWORD})
    secret = str(browser.secret)
    code = (await world.http.post("/v1/device-codes", json={"device_name": "x"})).json()
    await browser.post("/v1/device-codes/answer", {"user_code": code["user_code"], "approve": True})
    await world.http.post("/v1/device-codes/redeem", json={"device_code": code["device_code"]})
    for path in ("profile", "devices", "whoami"):
        await browser.get(f"/v1/{path}")
    await browser.post("/v1/profile/password", {"current_password": PASSWORD, "new_password": f"{PASSWORD} again"})
    await Browser(world).sign_in(email, f"{PASSWORD} again")
    return secret


@pytest.mark.long
@pytest.mark.slowest
async def test_no_secret_is_kept_shown_again_or_logged(database_url: str, tmp_path: Path) -> None:
    answers: list[httpx.Response] = []

    async def take(answer: httpx.Response) -> None:
        await answer.aread()
        answers.append(answer)

    with (
        serving(database_url, tmp_path, LOG_LEVEL="debug", **MANY) as server,
        working(database_url, tmp_path, LOG_LEVEL="debug") as worker,
    ):
        async with httpx.AsyncClient(base_url=server.url, timeout=30, event_hooks={"response": [take]}) as http:
            world = await World.create(database_url, http)
            by_operator, _ = await world.new_key_record(EVERY_PERMISSION)
            session_id = await world.new_session()
            token = await world.new_token(session_id)
            # In places where callers put them by mistake.
            for stray in (by_operator, token):
                await world.get(f"/v1/sessions/{stray}?after={stray}", key=stray, headers={"X-Request-Id": stray})
                await world.get("/v1/sessions", headers={"Authorization": f"Basic {stray}"})
                await world.post("/v1/sessions", {"title": 5, "secret": stray})
            await call_everything(world, [])
            device = await people_sign_in(world)
            await world.submit(session_id, key=token)
            await at_rest(world, session_id)
        logs = {log.name: log.read_bytes() for log in (server.log, worker.log)}
    secrets = [secret for answer in answers for secret in shown_in(answer)]
    assert len(secrets) == len(set(secrets)) > 5
    assert {secret.split("_")[0] for secret in secrets} == {"qd", "qds", "qdd", "qdi", "qdc", "whsec"}
    secrets += [world.key, by_operator, device, PASSWORD]
    found = {**logs, "database": dump(database_url)}
    assert b"CREATE TABLE app.api_keys" in found["database"]
    for secret in secrets:
        for form in forms(secret):
            assert not [name for name, data in found.items() if form in data], "kept or logged"
        holders = [answer for answer in answers if secret.encode() in answer.content + _head(answer)]
        assert len(holders) <= 1, "shown again"


def _head(answer: httpx.Response) -> bytes:
    return b"\n".join(name + b": " + value for name, value in answer.headers.raw)


async def test_no_read_shows_a_secret_or_its_hash(world: World) -> None:
    objects = await Objects.make(world)
    for operation in SHARED:
        if operation.method == "GET":
            answer = await request(world, operation, objects.ids, world.key, str(world.workspace_id))
            assert answer.status_code == 200, operation.name
            names = field_names(answer.json()) if answer.headers["content-type"] == "application/json" else set()
            assert names.isdisjoint({*SHOWN_ONCE, "secret_hash", "hash"}), operation.name


def field_names(value: Any) -> set[str]:
    if isinstance(value, list):
        return {name for each in value for name in field_names(each)}
    if not isinstance(value, dict):
        return set()
    return {*value, *(name for each in value.values() for name in field_names(each))}

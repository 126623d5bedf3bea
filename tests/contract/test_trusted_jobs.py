"""Jobs of a CI system push versions of a skill, without a secret. The issuer is a real HTTP server with real keys."""

import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest

from quarterdeck.api.routes import OPERATIONS
from quarterdeck.core.actors import Permission, Role
from quarterdeck.people import members
from quarterdeck.trusted_jobs.rules import unfit_claim
from tests.contract.test_callers import Objects, request
from tests.openid.hostile_provider import HostileProvider, hostile_provider, rsa_key, signed
from tests.people import Person
from tests.receivers import answering
from tests.world import (
    PATIENT,
    Server,
    World,
    bundle,
    clone_database,
    drop_database,
    error_of,
    serving,
)

CLAIMS = {"repository": "acme/skills", "ref": "refs/heads/*"}


@pytest.fixture(scope="module")
def server(postgres_url: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    url = clone_database(postgres_url, template)
    allowed = {"OIDC_ALLOWED_ADDRESSES": "127.0.0.1/32", "OIDC_REQUEST_SECONDS": 60}
    with serving(url, tmp_path_factory.mktemp("api"), **allowed, **PATIENT) as server:
        yield server
    drop_database(postgres_url, url)


class Ci:
    """A CI system, and a job of it that the workspace trusts."""

    def __init__(self, world: World, issuer: HostileProvider, job: dict[str, Any]) -> None:
        self.world = world
        self.issuer = issuer
        self.id: str = job["id"]
        self.skill_id: str = job["skill_id"]

    def claims(self, **changes: Any) -> dict[str, Any]:
        now = time.time()
        usual = {"iss": self.issuer.issuer, "sub": "x", "aud": self.id, "iat": now, "exp": now + 600}
        return usual | {"repository": "acme/skills", "ref": "refs/heads/main", "run_id": "7"} | changes

    def token(self, **changes: Any) -> str:
        return signed(self.issuer.key, "RS256", self.claims(**changes))

    async def exchange(self, token: str) -> httpx.Response:
        body = {"trusted_job_id": self.id, "token": token}
        return await self.world.http.post("/v1/trusted-jobs/exchange", json=body)

    async def key(self) -> str:
        answer = await self.exchange(self.token())
        assert answer.status_code == 201, answer.text
        secret: str = answer.json()["secret"]
        return secret

    async def push(self, key: str, headers: dict[str, str] | None = None) -> httpx.Response:
        return await self.world.push(self.skill_id, bundle("mine"), key=key, headers=headers)


@pytest.fixture
async def ci(world: World) -> Any:
    async with hostile_provider() as issuer:
        skill_id = await world.new_skill("mine")
        made = await world.post(f"/v1/skills/{skill_id}/trusted-jobs", _body(issuer))
        assert made.status_code == 201, made.text
        yield Ci(world, issuer, made.json())


def _body(issuer: HostileProvider) -> dict[str, Any]:
    return {"name": "main", "issuer": issuer.issuer, "claims": CLAIMS}


async def test_a_job_pushes_a_version(world: World, ci: Ci) -> None:
    answer = await ci.exchange(ci.token())
    assert answer.status_code == 201
    found = answer.json()
    assert (found["workspace_id"], found["skill_id"]) == (str(world.workspace_id), ci.skill_id)
    key = found["secret"]
    assert key.startswith("qdj_")
    pushed = await ci.push(key)
    assert pushed.status_code == 201, pushed.text
    for path in ("", "/versions", "/versions/1"):
        assert (await world.get(f"/v1/skills/{ci.skill_id}{path}", key=key)).status_code == 200
    who = (await world.get("/v1/whoami", key=key)).json()
    assert (who["kind"], who["id"], who["label"]) == ("trusted_job", ci.id, "main")
    assert who["permissions"] == ["workspace.read", "skill.manage"]
    assert key.startswith(who["prefix"])
    # What a job reads is often public.
    assert who["user"]["primary_email"] is None
    [listed] = (await world.get("/v1/trusted-jobs")).json()["items"]
    assert listed["claims"] == CLAIMS


async def test_and_nothing_else(world: World, ci: Ci) -> None:
    """Every operation, for objects that exist."""
    key, objects = await ci.key(), await Objects.make(world)
    own = objects.ids | {"skill_id": ci.skill_id}
    assert (await ci.push(key)).status_code == 201
    for operation in OPERATIONS:
        if operation.public or operation.name == "whoami":
            continue
        other, mine = [await request(world, operation, ids, key, str(world.workspace_id)) for ids in (objects.ids, own)]
        assert error_of(other) == (404, "not_found"), operation.name
        if operation.name in ("get_skill", "list_skill_versions", "get_skill_version", "push_skill_version"):
            assert mine.is_success, operation.name
        else:
            assert error_of(mine) == (404, "not_found"), operation.name
    for named, status in ((str(uuid4()), 404), (str(world.workspace_id), 201)):
        assert (await ci.push(key, {"Service-Workspace": named})).status_code == status


_WRONG: dict[str, Callable[[Ci], str]] = {
    "another repository": lambda ci: ci.token(repository="acme/other"),
    "a longer name": lambda ci: ci.token(repository="acme/skills2"),
    "another branch": lambda ci: ci.token(ref="refs/tags/main"),
    "a branch with a slash": lambda ci: ci.token(ref="refs/heads/main/x"),
    "a claim that is a list": lambda ci: ci.token(repository=["acme/skills"]),
    "no such claim": lambda ci: signed(
        ci.issuer.key, "RS256", {name: value for name, value in ci.claims().items() if name != "ref"}
    ),
    "another audience": lambda ci: ci.token(aud=str(uuid4())),
    "another issuer": lambda ci: ci.token(iss="https://example.com"),
    "expired": lambda ci: ci.token(exp=time.time() - 600, iat=time.time() - 1200),
    "from the future": lambda ci: ci.token(iat=time.time() + 600),
    "a key of somebody else": lambda ci: signed(rsa_key("key-1"), "RS256", ci.claims()),
    "no signature": lambda ci: signed(ci.issuer.key, "RS256", ci.claims()).rpartition(".")[0] + ".",
    "no token": lambda _: "x",
}


@pytest.mark.parametrize("name", _WRONG)
async def test_other_tokens_are_refused(ci: Ci, name: str) -> None:
    assert error_of(await ci.exchange(_WRONG[name](ci))) == (403, "forbidden")
    assert await ci.world.fetch("SELECT FROM job_keys WHERE trusted_job_id::text = %s", ci.id) == []


async def test_an_issuer_that_does_not_answer(ci: Ci) -> None:
    ci.issuer.metadata = {"issuer": "https://example.com"}
    assert error_of(await ci.exchange(ci.token())) == (403, "forbidden")
    ci.issuer.metadata = {}
    ci.issuer.behaviours["/keys"] = answering(503)
    assert error_of(await ci.exchange(ci.token())) == (503, "internal")


async def test_a_key_of_a_job_expires(ci: Ci) -> None:
    first = await ci.key()
    changed = "UPDATE job_keys SET expires_at = now() - interval '1 second' WHERE trusted_job_id::text = %s"
    await ci.world.execute(changed, ci.id)
    assert error_of(await ci.push(first)) == (401, "unauthorized")
    assert (await ci.push(await ci.key())).status_code == 201
    [(count,)] = await ci.world.fetch("SELECT count(*) FROM job_keys WHERE trusted_job_id::text = %s", ci.id)
    assert count == 1, "expired keys are deleted"


async def test_a_retry_of_a_job_is_found_with_its_next_key(ci: Ci) -> None:
    retry = {"Idempotency-Key": "run 7"}
    first, second = await ci.push(await ci.key(), retry), await ci.push(await ci.key(), retry)
    assert first.json() == second.json()
    assert "idempotency-replayed" in second.headers


async def test_what_a_job_did_is_recorded(world: World, ci: Ci) -> None:
    await ci.push(await ci.key())
    pushed, exchanged, created = (await world.get("/v1/audit-events")).json()["items"][:3]
    assert [event["action"] for event in (pushed, exchanged, created)] == [
        "push_skill_version",
        "exchange_job_token",
        "create_trusted_job",
    ]
    assert [event["trusted_job_id"] for event in (pushed, exchanged, created)] == [ci.id, ci.id, None]
    assert exchanged["detail"] == {"repository": "acme/skills", "ref": "refs/heads/main"}
    assert pushed["actor"] == created["actor"]


async def test_a_job_that_is_trusted_no_longer(world: World, ci: Ci) -> None:
    key = await ci.key()
    other = await World.create(world.database_url, world.http)
    assert (await other.delete(f"/v1/trusted-jobs/{ci.id}")).status_code == 404
    assert (await world.delete(f"/v1/trusted-jobs/{ci.id}")).status_code == 204
    assert error_of(await ci.push(key)) == (401, "unauthorized")
    assert error_of(await ci.exchange(ci.token())) == (404, "not_found")
    assert (await world.get("/v1/trusted-jobs")).json()["items"] == []


async def test_a_job_ends_with_its_skill(world: World, ci: Ci) -> None:
    key = await ci.key()
    assert (await world.delete(f"/v1/skills/{ci.skill_id}")).status_code == 204
    assert error_of(await ci.push(key)) == (401, "unauthorized")
    assert error_of(await ci.exchange(ci.token())) == (404, "not_found")


async def test_a_job_ends_with_the_membership_of_its_person(world: World, ci: Ci) -> None:
    admin = await Person.join(world, Role.ADMIN)
    made = await admin.post(f"/v1/skills/{ci.skill_id}/trusted-jobs", _body(ci.issuer))
    assert made.status_code == 201, made.text
    theirs = Ci(world, ci.issuer, made.json())
    key = await theirs.key()
    await world.execute("UPDATE members SET role = 'viewer' WHERE user_id::text = %s", await admin.id())
    assert error_of(await theirs.push(key)) == (403, "forbidden")
    assert error_of(await theirs.exchange(theirs.token())) == (404, "not_found")
    await world.execute("UPDATE members SET role = 'admin' WHERE user_id::text = %s", await admin.id())
    assert (await theirs.push(key)).status_code == 201
    async with await world.connect() as connection:
        await members.remove_by_operator(connection, world.workspace_id, admin.email)
        assert error_of(await theirs.push(key)) == (401, "unauthorized")
        await members.add_by_operator(connection, world.workspace_id, admin.email, Role.ADMIN)
    # Nothing comes back with the person.
    assert error_of(await theirs.push(key)) == (401, "unauthorized")
    events = (await world.get(f"/v1/audit-events?object_id={theirs.id}&action=delete_trusted_job")).json()["items"]
    assert len(events) == 1
    assert (await ci.push(await ci.key())).status_code == 201


async def test_who_may_trust_a_job(world: World, ci: Ci) -> None:
    body = _body(ci.issuer)
    member = await Person.join(world, Role.MEMBER)
    assert error_of(await member.post(f"/v1/skills/{ci.skill_id}/trusted-jobs", body)) == (403, "forbidden")
    weaker = await world.new_key(Permission.KEY_MANAGE, Permission.WORKSPACE_READ)
    assert error_of(await world.post(f"/v1/skills/{ci.skill_id}/trusted-jobs", body, key=weaker)) == (403, "forbidden")
    short = await world.post(
        "/v1/api-keys", {"label": "x", "permissions": list(Permission), "expires_at": "2999-01-01T00:00:00Z"}
    )
    answer = await world.post(f"/v1/skills/{ci.skill_id}/trusted-jobs", body, key=short.json()["secret"])
    assert error_of(answer) == (403, "forbidden")


@pytest.mark.parametrize(
    "changes",
    [
        {"claims": {}},
        {"claims": {"ref": "refs/heads/*"}},
        {"claims": {"aud": "x"}},
        {"claims": {"repository": ""}},
        {"claims": {"repository": 7}},
        {"issuer": "https://10.0.0.1"},
        {"issuer": "ftp://example.com"},
        {"issuer": "https://example.com/?x"},
        {"issuer": "example.com"},
    ],
    ids=str,
)
async def test_what_cannot_be_trusted(world: World, ci: Ci, changes: dict[str, Any]) -> None:
    answer = await world.post(f"/v1/skills/{ci.skill_id}/trusted-jobs", _body(ci.issuer) | changes)
    assert error_of(answer) == (400, "invalid_request")


@pytest.mark.parametrize(
    ("pattern", "value", "fits"),
    [
        ("main", "main", True),
        ("main", "Main", False),
        ("main", None, False),
        ("v*", "v1.2", True),
        ("v*", "v", True),
        ("*", "a/b", False),
        ("*", "a:b", False),
        ("a/*", "a/b", True),
        ("a/*", "a/b/c", False),
        ("a/*:b", "a/x:b", True),
        ("a[b]?", "a[b]?", True),
        ("a[b]?", "abx", False),
        ("true", True, True),
        ("1", True, False),
        ("4711", 4711, True),
        ("1.0", 1.0, False),
        ("x", {"x": 1}, False),
    ],
)
def test_claims(pattern: str, value: object, fits: bool) -> None:
    assert (unfit_claim({"claim": pattern}, {"claim": value}) is None) == fits


def test_a_claim_is_compared_in_little_time() -> None:
    """Not in a time that grows with a power of the length."""
    assert unfit_claim({"claim": "a*" * 99}, {"claim": "a" * 60_000 + "b"}) is None
    assert unfit_claim({"claim": "a*" * 99 + "c"}, {"claim": "a" * 60_000}) == "claim"

"""`qd trusted-jobs`: as an admin, and in a job."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.people import Person, nearby
from tests.openid.hostile_provider import hostile_provider, signed
from tests.world import PATIENT, Server, World, clone_database, drop_database, serving


@pytest.fixture(scope="module")
def server(postgres_url: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    url = clone_database(postgres_url, template)
    allowed = {"OIDC_ALLOWED_ADDRESSES": "127.0.0.1/32", "OIDC_REQUEST_SECONDS": 60}
    with serving(url, tmp_path_factory.mktemp("api"), **allowed, **PATIENT) as server:
        yield server
    drop_database(postgres_url, url)


async def test_a_job_pushes_with_qd(tmp_path: Path, server: Server, world: World) -> None:
    admin = nearby(tmp_path, server, world)
    skill_id = await world.new_skill("notes")
    (tmp_path / "SKILL.md").write_text("---\nname: notes\ndescription: Notes.\n---\nBody.\n")
    async with hostile_provider() as issuer:
        made = admin.json(
            *("trusted-jobs", "create", "notes", "--issuer", issuer.issuer, "--claim", "repository=acme/skills"),
            *("--claim", "ref=refs/heads/*"),
        )
        assert (made["name"], made["skill_id"]) == ("repository=acme/skills ref=refs/heads/*", skill_id)
        now = time.time()
        claims = {"iss": issuer.issuer, "aud": made["id"], "iat": now, "exp": now + 600}
        token = signed(issuer.key, "RS256", claims | {"repository": "acme/skills", "ref": "refs/heads/main"})
        wrong = signed(issuer.key, "RS256", claims | {"repository": "acme/others", "ref": "refs/heads/main"})
        job = Person(tmp_path, {"QD_URL": server.url})
        exchange = ("trusted-jobs", "exchange", made["id"])
        # In a thread: the issuer answers in this one.
        _, told = await asyncio.to_thread(job.refused, *exchange, given=wrong)
        assert told == "The claim repository of the token is not what the trusted job has."
        key = (await asyncio.to_thread(job.done, *exchange, given=token)).strip()
    pushed = Person(tmp_path, {"QD_URL": server.url, "QD_KEY": key}).done("skills", "push", skill_id, str(tmp_path))
    assert pushed.startswith("pushed notes version 1")
    listed = admin.json("trusted-jobs", "list")["items"]
    assert [one["id"] for one in listed] == [made["id"]]
    assert admin.done("trusted-jobs", "delete", made["name"], "--yes") == f"deleted {made['name']}\n"
    assert admin.json("trusted-jobs", "list")["items"] == []


def test_claims_and_tokens_that_are_missing(tmp_path: Path, server: Server, world: World) -> None:
    admin = nearby(tmp_path, server, world)
    create = ("trusted-jobs", "create", "notes", "--issuer", "https://example.com", "--claim")
    assert admin.refused(*create, "repository") == (2, "'repository' is not of the form NAME=VALUE.")
    told = admin.refused("trusted-jobs", "exchange", str(world.workspace_id))
    assert told == (2, "No token given. Pipe the token of the job in.")

"""Every operation of the route table, called by every kind of caller. A new operation is covered automatically."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx
import msgspec
import pytest
from msgspec import Struct

from quarterdeck.api.openapi import example_of
from quarterdeck.api.routes import OPERATIONS
from quarterdeck.core.actors import CredentialKind, Permission, Role
from quarterdeck.core.operation import Operation, Payload
from quarterdeck.core.secrets import mint
from quarterdeck.people import members
from quarterdeck.webhooks.model import CreatedWebhookBody, WebhookBody
from tests.people import Person, new_email
from tests.session_files import add_archive_as_file
from tests.waiting_runs import approval, new_actions
from tests.workers import log_of
from tests.world import Server, World, bundle, error_of

# Where the example of the OpenAPI document names objects that the workspace does not have, or needs more permissions.
BODIES: dict[str, Any] = {
    "create_session": {},
    "change_session": {"title": "x"},
    "change_workspace": {"limits": {"day": {"max_tokens": 1000000000}}},
    "fork_session": {},
    "create_agent": {"name": "x"},
    "push_agent_version": {},
    "create_mcp_server": {"name": "x", "url": "https://example.com/mcp"},
    "create_api_key": {"label": "x", "permissions": []},
    "create_invitation": {"email": "x@example.com", "role": "viewer"},
    "change_member": {"role": "viewer"},
    "submit_input": {"type": "input", "text": "x"},
    "create_webhook": {"url": "https://example.com/", "events": ["run.failed"]},
    "resolve_action": {"decision": "allow"},
}


def body_of(operation: Operation) -> Any:
    if operation.name in BODIES:
        return BODIES[operation.name]
    return msgspec.to_builtins(example_of(operation, operation.payload))


class Objects(Struct, frozen=True):
    """What the paths of one workspace can name."""

    ids: dict[str, str]
    # Others, for whoever deletes while the first are still needed.
    doomed: dict[str, str]

    @classmethod
    async def make(cls, world: World) -> "Objects":
        ids: dict[str, str] = {}
        for make in _MAKERS:
            ids |= await make(world)
        doomed = {
            "webhook_id": await world.new_webhook(),
            "credential_id": await world.new_credential(),
            "file_id": await world.new_file(),
            "session_id": await world.new_session(),
            "mcp_server_id": await world.new_mcp_server(),
            "skill_id": await world.new_skill(),
            **await _member_ids(world),
            **await _invitation_ids(world),
            **await _trusted_job_ids(world),
        }
        return cls(ids, doomed)


async def ids_for(world: World, operation: Operation) -> dict[str, str]:
    """What the path of the operation names, for one that changes it."""
    return await _MAKER_OF[operation.path_ids[0]](world) if operation.path_ids else {}


async def _session_ids(world: World) -> dict[str, str]:
    session_id = await world.new_session()
    token = (await world.post(f"/v1/sessions/{session_id}/tokens", {})).json()
    # An archive that can become a file.
    await _skill_ids(world)
    await add_archive_as_file(world, session_id, "a.txt")
    run_id = (await world.submit(session_id)).json()["run_id"]
    # A worker may have added others.
    accepted = (await log_of(world, session_id))[0]
    (action_id,) = await new_actions(world, session_id, run_id, [approval()])
    return {
        "session_id": session_id,
        "session_token_id": token["id"],
        "run_id": run_id,
        "action_id": action_id,
        "input_id": accepted["data"]["input_id"],
    }


async def _skill_ids(world: World) -> dict[str, str]:
    skill_id = await world.new_skill()
    assert (await world.push(skill_id, bundle())).status_code == 201
    return {"skill_id": skill_id, "version": "1"}


async def _agent_ids(world: World) -> dict[str, str]:
    return {"agent_id": await world.new_agent(), "version": "1"}


async def _webhook_ids(world: World) -> dict[str, str]:
    webhook_id = await world.new_webhook()
    delivery = (await world.post(f"/v1/webhooks/{webhook_id}/test", None)).json()
    return {"webhook_id": webhook_id, "delivery_id": delivery["id"]}


async def _api_key_ids(world: World) -> dict[str, str]:
    created = (await world.post("/v1/api-keys", {"label": "object", "permissions": []})).json()
    return {"api_key_id": created["id"]}


async def _mcp_server_ids(world: World) -> dict[str, str]:
    return {"mcp_server_id": await world.new_mcp_server()}


async def _credential_ids(world: World) -> dict[str, str]:
    return {"credential_id": await world.new_credential()}


async def _file_ids(world: World) -> dict[str, str]:
    return {"file_id": await world.new_file()}


async def _member_ids(world: World) -> dict[str, str]:
    async with await world.connect() as connection:
        return {"member_id": str(await members.add_by_operator(connection, world.workspace_id, new_email()))}


async def _invitation_ids(world: World) -> dict[str, str]:
    return {"invitation_id": (await world.post("/v1/invitations", {"email": new_email()})).json()["id"]}


async def _device_ids(world: World) -> dict[str, str]:
    person = await Person.join(world, Role.MEMBER)
    return {"device_id": (await person.get("/v1/profile")).json()["device_id"]}


async def _trusted_job_ids(world: World) -> dict[str, str]:
    body = {"name": "x", "issuer": "https://example.com", "claims": {"sub": "x"}}
    answer = await world.post(f"/v1/skills/{await world.new_skill()}/trusted-jobs", body)
    return {"trusted_job_id": answer.json()["id"]}


# By the first id of a path.
_MAKER_OF: dict[str, Callable[[World], Awaitable[dict[str, str]]]] = {
    "session_id": _session_ids,
    "run_id": _session_ids,
    "action_id": _session_ids,
    "skill_id": _skill_ids,
    "agent_id": _agent_ids,
    "webhook_id": _webhook_ids,
    "api_key_id": _api_key_ids,
    "mcp_server_id": _mcp_server_ids,
    "credential_id": _credential_ids,
    "file_id": _file_ids,
    "member_id": _member_ids,
    "invitation_id": _invitation_ids,
    "device_id": _device_ids,
    "trusted_job_id": _trusted_job_ids,
}
_MAKERS = list(dict.fromkeys(_MAKER_OF.values()))


def absent_ids(ids: dict[str, str]) -> dict[str, str]:
    """Of the right form, and of nothing that exists."""
    return {name: str(uuid4()) if name.endswith("_id") else "999999" for name in ids}


# What an operation cannot be called without, beside path and body.
QUERIES: dict[str, dict[str, str]] = {
    "download_skill_file": {"path": "SKILL.md"},
    "upload_file": {"name": "notes.txt"},
    "diff_skill_versions": {"base": "1", "head": "1"},
    "diff_agent_versions": {"base": "1", "head": "1"},
    "download_session_file": {"path": "a.txt"},
}


# Media types of bodies that are not JSON.
TYPES: dict[Any, dict[str, str]] = {
    Payload.GZIP: {"Content-Type": "application/gzip"},
    Payload.FILE: {"Content-Type": "text/plain"},
}


async def prepare(world: World, operation: Operation, ids: dict[str, str]) -> None:
    """Only an ended run can be retried, and only an active one cancelled."""
    if operation.name == "retry_run":
        statement = "UPDATE runs SET state = 'cancelled' WHERE id::text = %s AND state = 'queued'"
        await world.execute(statement, ids["run_id"])


async def request(
    world: World,
    operation: Operation,
    ids: dict[str, str],
    credential: str | None,
    workspace: str,
    *,
    is_prepared: bool = False,
) -> httpx.Response:
    headers = {} if credential is None else {"Authorization": f"Bearer {credential}"}
    if not is_prepared:
        await prepare(world, operation, ids)
    if operation.workspace_required:
        headers["Service-Workspace"] = workspace
    content: dict[str, Any] = {}
    if operation.payload is Payload.GZIP:
        headers |= TYPES[operation.payload]
        content = {"content": bundle()}
    elif operation.payload is Payload.FILE:
        headers |= TYPES[operation.payload]
        content = {"content": b"notes"}
    elif operation.payload is not Payload.NONE:
        content = {"json": body_of(operation)}
    path, query = operation.path.format(**ids), QUERIES.get(operation.name, {})
    return await world.http.request(operation.method, path, params=query, headers=headers, **content)


UNAUTHORIZED, FORBIDDEN, NOT_FOUND = (401, "unauthorized"), (403, "forbidden"), (404, "not_found")
Caller = Callable[[World], Awaitable[str | None]]


async def nobody(world: World) -> None:
    return None


async def unknown(world: World) -> str:
    return mint(CredentialKind.API_KEY, "test").text


async def unknown_token(world: World) -> str:
    return mint(CredentialKind.SESSION_TOKEN, "test").text


async def malformed(world: World) -> str:
    return world.key[:-1] + ("a" if world.key[-1] != "a" else "b")


async def revoked(world: World) -> str:
    return await world.revoked_key()


async def expired(world: World) -> str:
    return await world.expired_key()


async def expired_token(world: World) -> str:
    session_id = await world.new_session()
    token = await world.new_token(session_id)
    await world.execute("UPDATE session_tokens SET expires_at = now() WHERE session_id = %s", session_id)
    return token


async def token_of_revoked_key(world: World) -> str:
    session_id = await world.new_session()
    maker, maker_id = await world.new_key_record(tuple(Permission))
    token: str = (await world.post(f"/v1/sessions/{session_id}/tokens", {}, key=maker)).json()["token"]
    await world.execute("UPDATE api_keys SET revoked_at = now() WHERE id = %s", maker_id)
    return token


STRANGERS: list[Caller] = [
    nobody,
    unknown,
    unknown_token,
    malformed,
    revoked,
    expired,
    expired_token,
    token_of_revoked_key,
]


class Stage(Struct, frozen=True):
    """A workspace for those who are refused, made once: whoever is refused leaves it as it was."""

    workspace_id: UUID
    objects: Objects
    key: str
    # By the name of the caller.
    strangers: dict[str, str | None]
    # By the permission that they lack.
    lacking: dict[Permission, str]
    reader: str
    token: str

    @classmethod
    async def make(cls, server: Server) -> "Stage":
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
            world = await World.create(server.database_url, http)
            return cls(
                world.workspace_id,
                await Objects.make(world),
                world.key,
                {caller.__name__: await caller(world) for caller in STRANGERS},
                {missing: await world.new_key(*(set(Permission) - {missing})) for missing in Permission},
                await world.new_key(Permission.WORKSPACE_READ),
                await another_token(world),
            )


@pytest.fixture(scope="module")
def stage(server: Server) -> Stage:
    return asyncio.run(Stage.make(server))


@pytest.fixture
async def visitor(server: Server, stage: Stage) -> AsyncIterator[World]:
    """Asks on the stage, with its key."""
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
        world = World(server.database_url, http)
        world.workspace_id, world.key = stage.workspace_id, stage.key
        yield world


# Those that need no credential have tests of their own: test_sign_in.py, test_invitations.py, test_profiles.py and
# test_trusted_jobs.py.
CHECKED = [operation for operation in OPERATIONS if not operation.public]
# What belongs to a person is tested there, too: keys get 404, with whatever permissions.
SHARED = [operation for operation in CHECKED if not operation.personal]
OPERATION = pytest.mark.parametrize("operation", CHECKED, ids=lambda operation: operation.name)
SHARED_OPERATION = pytest.mark.parametrize("operation", SHARED, ids=lambda operation: operation.name)


@OPERATION
async def test_unknown_credential_is_401(visitor: World, stage: Stage, operation: Operation) -> None:
    """With right and with nonsensical paths alike."""
    objects = stage.objects
    for caller, credential in stage.strangers.items():
        for ids in (objects.ids, dict.fromkeys(objects.ids, "nonsense"), absent_ids(objects.ids)):
            answer = await request(visitor, operation, ids, credential, str(stage.workspace_id))
            assert error_of(answer) == UNAUTHORIZED, caller
            assert answer.headers["www-authenticate"] == "Bearer", caller


@SHARED_OPERATION
async def test_foreign_workspace_is_404_with_the_same_bytes_as_unknown(
    world: World, stage: Stage, operation: Operation
) -> None:
    objects = stage.objects
    if not _named(operation) and not operation.workspace_required:
        body = None if isinstance(operation.payload, Payload) else body_of(operation)
        answer = await world.http.request(
            operation.method,
            operation.path,
            params=QUERIES.get(operation.name, {}),
            headers=world.headers() | {"Service-Workspace": str(stage.workspace_id)} | TYPES.get(operation.payload, {}),
            **({} if body is None else {"json": body}),
        )
        assert error_of(answer) == NOT_FOUND
        return
    foreign = await request(world, operation, objects.ids, world.key, str(stage.workspace_id))
    nothing = await request(world, operation, absent_ids(objects.ids), world.key, str(uuid4()))
    assert error_of(foreign) == error_of(nothing) == NOT_FOUND
    assert foreign.content == nothing.content


@SHARED_OPERATION
async def test_lacking_the_permission(visitor: World, stage: Stage, operation: Operation) -> None:
    for permission in operation.permissions:
        key, objects = stage.lacking[permission], stage.objects
        answer = await request(visitor, operation, objects.ids, key, str(stage.workspace_id))
        assert error_of(answer) == (NOT_FOUND if operation.hides_forbidden else FORBIDDEN)
        if _named(operation):
            answer = await request(visitor, operation, absent_ids(objects.ids), key, str(stage.workspace_id))
            assert error_of(answer) == NOT_FOUND


async def test_change_of_nothing_does_not_show_the_url_of_a_webhook(visitor: World, stage: Stage) -> None:
    path = f"/v1/webhooks/{stage.objects.ids['webhook_id']}"
    for key, expected in ((stage.lacking[Permission.WORKSPACE_READ], 403), (stage.key, 200)):
        answer = await visitor.http.patch(path, json={}, headers=visitor.headers(key=key))
        assert answer.status_code == expected


def test_responses_with_the_url_of_a_webhook_need_the_permission_to_read() -> None:
    """Creating a webhook is the exception: its response shows what the caller sent."""
    shown = {each.name for each in OPERATIONS if each.success_type in (WebhookBody, CreatedWebhookBody)}
    readable = {each.name for each in OPERATIONS if Permission.WORKSPACE_READ in each.permissions}
    assert shown - readable == {"create_webhook"}


async def another_token(world: World) -> str:
    return await world.new_token(await world.new_session(), may_resolve=True)


class Scene(Struct, frozen=True):
    """A workspace and what the path of one operation names there. A new one for an operation that changes it, otherwise
    the stage."""

    world: World
    ids: dict[str, str]

    @classmethod
    async def set(cls, visitor: World, stage: Stage, operation: Operation) -> "Scene":
        if operation.method == "GET":
            return cls(visitor, stage.objects.ids)
        world = await World.create(visitor.database_url, visitor.http)
        return cls(world, await ids_for(world, operation))

    async def request(self, operation: Operation, credential: str) -> httpx.Response:
        return await request(self.world, operation, self.ids, credential, str(self.world.workspace_id))

    async def token(self) -> str:
        """Of the session in the path."""
        session_id = self.ids.get("session_id") or await self.world.new_session()
        return await self.world.new_token(session_id, may_resolve=True)


@SHARED_OPERATION
async def test_session_tokens_see_no_email_addresses(visitor: World, stage: Stage, operation: Operation) -> None:
    scene = await Scene.set(visitor, stage, operation)
    by_key = await scene.request(operation, scene.world.key)
    assert (b"@example.com" in by_key.content) == (b"primary_email" in by_key.content)
    if operation.session_token:
        scene = await Scene.set(visitor, stage, operation)
        answer = await scene.request(operation, await scene.token())
        assert answer.status_code == operation.success_status, answer.text
        assert b"@example.com" not in answer.content


@SHARED_OPERATION
async def test_a_session_token_sees_its_session_and_nothing_else(
    visitor: World, stage: Stage, operation: Operation
) -> None:
    # Who is refused leaves the stage as it was.
    scene = Scene(visitor, stage.objects.ids)
    if operation.session_token:
        scene = await Scene.set(visitor, stage, operation)
    by_own = await scene.request(operation, await scene.token())
    if operation.session_token:
        assert by_own.status_code == operation.success_status
    else:
        assert error_of(by_own) == NOT_FOUND
    other = stage.token if scene.world is visitor else await another_token(scene.world)
    by_other = await scene.request(operation, other)
    if operation.session_token and not _named(operation):
        assert by_other.status_code == operation.success_status, "of no session, so every token may ask"
    else:
        assert error_of(by_other) == NOT_FOUND


@SHARED_OPERATION
async def test_the_right_caller(visitor: World, stage: Stage, operation: Operation) -> None:
    """The permissions alone are enough, and a key that still lives a while works like one that never ends."""
    scene = await Scene.set(visitor, stage, operation)
    # What a key gives to others it needs itself.
    given = (Permission.SKILL_MANAGE,) if operation.name == "create_trusted_job" else ()
    needed = (*operation.permissions, *given)
    # A key that ends cannot make what does not.
    lasts = operation.name in ("create_api_key", "rotate_api_key", "create_trusted_job")
    key, _ = await scene.world.new_key_record(needed, None if lasts else datetime.now(UTC) + timedelta(hours=30))
    answer = await scene.request(operation, key)
    assert answer.status_code == operation.success_status, answer.text


@pytest.mark.parametrize("operation", [each for each in CHECKED if each.personal], ids=lambda operation: operation.name)
async def test_keys_and_tokens_see_nothing_of_people(visitor: World, stage: Stage, operation: Operation) -> None:
    for key in (stage.key, stage.reader, stage.token):
        for ids in (stage.objects.ids, absent_ids(stage.objects.ids)):
            answer = await request(visitor, operation, ids, key, str(stage.workspace_id))
            assert error_of(answer) == NOT_FOUND


@OPERATION
async def test_bad_paths_are_400_before_visibility_and_permission(
    visitor: World, stage: Stage, operation: Operation
) -> None:
    if not _named(operation):
        return
    for key in (stage.key, stage.reader, stage.token):
        for bad in ("nonsense", f"{{{uuid4()}}}", uuid4().hex, f"urn:uuid:{uuid4()}", "０" * 36):
            ids = dict.fromkeys(_named(operation), bad)
            answer = await request(visitor, operation, ids, key, str(stage.workspace_id))
            assert error_of(answer) == (400, "invalid_request")


def _named(operation: Operation) -> set[str]:
    return {part[1:-1] for part in operation.path.split("/") if part.startswith("{")}

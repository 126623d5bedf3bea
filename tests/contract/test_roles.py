"""Every operation, called by people of every role. A new operation is covered automatically."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
from msgspec import Struct

from quarterdeck.core.actors import Permission, Role
from quarterdeck.core.operation import Operation
from tests.contract.test_callers import (
    FORBIDDEN,
    NOT_FOUND,
    SHARED,
    Objects,
    Scene,
    Stage,
    absent_ids,
    request,
)
from tests.pages import ROOT
from tests.people import Person
from tests.world import Server, World, error_of

# The table of docs/use/people.md.
VIEWER = {Permission.WORKSPACE_READ}
MEMBER = VIEWER | {
    Permission.SESSION_MANAGE,
    Permission.ACTION_RESOLVE,
    Permission.SKILL_MANAGE,
    Permission.AGENT_MANAGE,
}
ALLOWED = {Role.VIEWER: VIEWER, Role.MEMBER: MEMBER, Role.ADMIN: set(Permission), Role.OWNER: set(Permission)}
# Needs `session.manage` too: a limit of the daily cost may be raised by admins only.
LOWEST_FIRST = list(ALLOWED)


class Cast(Struct, frozen=True):
    """A workspace with a person of each role. Who is refused leaves it as it was."""

    workspace_id: str
    key: str
    objects: Objects
    # The credentials of devices.
    secrets: dict[Role, str]

    @classmethod
    async def gather(cls, server: Server) -> "Cast":
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
            world = await World.create(server.database_url, http)
            people = {role: await Person.join(world, role) for role in Role}
            secrets = {role: str(person.secret) for role, person in people.items()}
            return cls(str(world.workspace_id), world.key, await Objects.make(world), secrets)


@pytest.fixture(scope="module")
def cast(server: Server) -> Cast:
    return asyncio.run(Cast.gather(server))


@pytest.fixture
async def visitor(server: Server) -> AsyncIterator[World]:
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
        yield World(server.database_url, http)


OPERATION = pytest.mark.parametrize("operation", SHARED, ids=lambda operation: operation.name)


@OPERATION
async def test_a_role_is_refused_what_it_may_not_do(visitor: World, cast: Cast, operation: Operation) -> None:
    for role, allowed in ALLOWED.items():
        if set(operation.permissions) <= allowed:
            continue
        answer = await request(visitor, operation, cast.objects.ids, cast.secrets[role], cast.workspace_id)
        assert error_of(answer) == (NOT_FOUND if operation.hides_forbidden else FORBIDDEN), role
        if operation.path_ids:
            ids = absent_ids(cast.objects.ids)
            answer = await request(visitor, operation, ids, cast.secrets[role], cast.workspace_id)
            assert error_of(answer) == NOT_FOUND, role


@OPERATION
async def test_the_lowest_role_with_the_permissions_may_do_it(visitor: World, cast: Cast, operation: Operation) -> None:
    role = next(role for role in LOWEST_FIRST if set(operation.permissions) <= ALLOWED[role])
    stage = Stage(cast.workspace_id, cast.objects, cast.key, {}, {}, "", "")  # type: ignore[arg-type]
    visitor.workspace_id, visitor.key = cast.workspace_id, cast.key  # type: ignore[assignment]
    scene = await Scene.set(visitor, stage, operation)
    person = cast.secrets[role] if scene.world is visitor else str((await Person.join(scene.world, role)).secret)
    answer = await scene.request(operation, person)
    assert answer.status_code == operation.success_status, answer.text


@OPERATION
async def test_people_of_another_workspace_see_nothing(visitor: World, cast: Cast, operation: Operation) -> None:
    """Nor what the workspace has: absent ids give the same bytes."""
    other = await World.create(visitor.database_url, visitor.http)
    owner = str((await Person.join(other, Role.OWNER)).secret)
    if operation.path_ids or operation.workspace_required:
        foreign = await request(visitor, operation, cast.objects.ids, owner, cast.workspace_id)
        absent = await request(visitor, operation, absent_ids(cast.objects.ids), owner, cast.workspace_id)
        assert error_of(foreign) == error_of(absent) == NOT_FOUND
        assert foreign.content == absent.content


async def test_the_table_for_people_is_true(world: World) -> None:
    """Every permission has a row, and its cells are what the database allows."""
    lines = [line for line in (ROOT / "docs/use/people.md").read_text("utf-8").splitlines() if line.startswith("| ")]
    heading, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    told = {
        row[1].strip("`"): {role for role, cell in zip(heading[2:], row[2:], strict=True) if cell == "yes"}
        for row in rows
    }
    assert told.pop("") == {Role.OWNER}
    granted = await world.fetch("SELECT role, permissions_of(role) FROM unnest(%s::text[]) AS role", list(Role))
    assert told == {permission: {role for role, has in granted if permission in has} for permission in Permission}

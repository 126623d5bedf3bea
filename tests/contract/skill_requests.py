"""Requests about skills, for several test files."""

from typing import Any

from tests.world import World, bundle


async def skill_of(world: World, skill_id: str) -> dict[str, Any]:
    answer = await world.get(f"/v1/skills/{skill_id}")
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    assert answer.headers["etag"] == f'"{body["revision"]}"'
    return body


async def change(world: World, skill_id: str, **body: Any) -> dict[str, Any]:
    answer = await world.patch(f"/v1/skills/{skill_id}", body)
    assert answer.status_code == 200, answer.text
    changed: dict[str, Any] = answer.json()
    assert answer.headers["etag"] == f'"{changed["revision"]}"'
    return changed


async def with_versions(world: World, count: int) -> str:
    skill_id = await world.new_skill()
    for number in range(1, count + 1):
        assert (await world.push(skill_id, bundle(f"version-{number}"))).status_code == 201
    return skill_id


async def audited(world: World, skill_id: str) -> list[tuple[Any, ...]]:
    query = "SELECT action, object_type, detail FROM audit_events WHERE object_id = %s ORDER BY id"
    return await world.fetch(query, skill_id)


async def walk(world: World, path: str, **query: str | int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    after: dict[str, str | int] = {}
    while True:
        answer = await world.http.get(path, params=query | after, headers=world.headers())
        assert answer.status_code == 200, answer.text
        found += answer.json()["items"]
        if answer.json()["next_cursor"] is None:
            return found
        after = {"after": answer.json()["next_cursor"]}

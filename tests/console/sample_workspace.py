"""A workspace with sample data for every page: for the tests of all pages and for screenshots."""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
from msgspec import Struct

from quarterdeck.api_keys.model import CreateApiKeyBody
from quarterdeck.core.actors import Permission, Role
from quarterdeck.people import members, profiles
from quarterdeck.workspaces import service as workspaces
from tests.console.sample_agents import SampleAgents, add_agents
from tests.console.sample_report import add_report
from tests.people import invite
from tests.workers import at_rest, eventually, started
from tests.world import EVERY_PERMISSION, World, bundle

ADA, GRACE, LINUS = "ada@harbour.example", "grace@harbour.example", "linus@harbour.example"
NAMES = {ADA: "Ada Marlowe", GRACE: "Grace Osei", LINUS: "Linus Brandt"}
_SKILL = """---
name: release-notes
description: Writes release notes from the changes since the last tag, in the voice of the house.
license: MIT
---
Read `guide.md` first. The voice is in `style/voice.md`.
"""
_MAIN = "# {title}\n\nRead the changes since the last tag, group them by area and write for people who use it.\n"
_STYLE = "Short sentences. Say what changed for the reader, not what was edited.\n"
_CHECK = '#!/bin/sh\nset -eu\ngit describe --tags --abbrev=0\ngit log --oneline "$1"..HEAD\n'


class SampleWorkspace(Struct, frozen=True):
    world: World
    key: str
    token: str
    session_id: str
    busy_id: str
    waiting_id: str
    skill_id: str
    webhook_id: str
    agents: SampleAgents

    @property
    def pages(self) -> dict[str, str]:
        """Name and path of every page except the sign-in page."""
        return {
            "sessions": "/sessions",
            "session": f"/sessions/{self.session_id}",
            "inbox": "/inbox",
            "approval": f"/sessions/{self.waiting_id}",
            "agents": "/agents",
            "agent": f"/agents/{self.agents.agent_id}",
            "agent-version": f"/agents/{self.agents.agent_id}/versions/2",
            "agent-diff": f"/agents/{self.agents.agent_id}/diff?from=1&to=2",
            "agent-editor": f"/agents/{self.agents.agent_id}/edit",
            "mcp-servers": "/mcp-servers",
            "mcp-server": f"/mcp-servers/{self.agents.server_id}",
            "credentials": "/credentials",
            "skills": "/skills",
            "skill": f"/skills/{self.skill_id}",
            "skill-version": f"/skills/{self.skill_id}/versions/2",
            "skill-diff": f"/skills/{self.skill_id}/diff?from=1&to=2",
            "keys": "/keys",
            "webhooks": "/webhooks",
            "webhook": f"/webhooks/{self.webhook_id}",
            "activity": "/activity",
            "audit": "/audit",
            "workspace": "/workspace",
            "members": "/members",
        }


async def create_sample(database_url: str, http: httpx.AsyncClient) -> SampleWorkspace:
    """Needs a worker. One session has a finished conversation with steering, tools and a failure; one is running,
    and three wait for an answer."""
    world = World(database_url, http)
    await _members(world)
    await _keys(world)
    skill_id = await _skill(world)
    session_id = await _session(world, "Release notes for 2.4", skills=[{"skill_id": skill_id}])
    await _conversation(world, session_id)
    token = (await _post(world, f"/v1/sessions/{session_id}/tokens", {}))["token"]
    await _session(world, "Why is the nightly import slow?", instructions="Look at the query plans first.")
    await _post(world, "/v1/skills", {"name": "incident-review"})
    busy = await _session(world, "Draft the March invoice run")
    await _submit(world, busy, "Go through the open orders.\ndemo: steps 40\ndemo: slow 60")
    await started(world, busy)
    waiting = await _requests(world)
    webhook_id = await _webhooks(world)
    agents = await add_agents(world, skill_id)
    return SampleWorkspace(world, world.key, token, session_id, busy, waiting, skill_id, webhook_id, agents)


async def _members(world: World) -> None:
    async with await world.connect() as connection:
        world.workspace_id = await workspaces.create_workspace(connection, "Harbour Works", ADA)
        for email in NAMES:
            if email != ADA:
                await members.add_by_operator(connection, world.workspace_id, email)
            await profiles.name_by_operator(connection, email, NAMES[email])
        await members.remove_by_operator(connection, world.workspace_id, LINUS)
        await invite(world, "mary@harbour.example", Role.VIEWER)


async def _keys(world: World) -> None:
    now = datetime.now(UTC)
    async with await world.connect() as connection:

        async def add(label: str, *permissions: Permission, days: int | None = None, by: str = ADA) -> tuple[str, str]:
            expires_at = None if days is None else now + timedelta(days=days)
            body = CreateApiKeyBody(label, list(permissions), expires_at)
            made = await workspaces.create_key(connection, "live", world.workspace_id, body, by)
            assert isinstance(made.secret, str)
            return made.secret, str(made.id)

        _, old_id = await add("Old laptop", *EVERY_PERMISSION)
        await add("Dashboard", Permission.WORKSPACE_READ, days=3, by=GRACE)
        _, build_id = await add("Build server", Permission.WORKSPACE_READ, Permission.SKILL_MANAGE, days=90, by=GRACE)
        world.key, _ = await add("Ada's browser", *EVERY_PERMISSION)
    await _post(world, f"/v1/api-keys/{old_id}/revoke", status=200)
    await _post(world, f"/v1/api-keys/{build_id}/rotate", {"overlap_seconds": 24 * 3600})


async def _skill(world: World) -> str:
    skill_id: str = (await _post(world, "/v1/skills", {"name": "release-notes"}))["id"]
    first = {"SKILL.md": _SKILL, "guide.md": _MAIN.format(title="Release notes"), "style/voice.md": _STYLE}
    second = {
        "SKILL.md": _SKILL.replace("first.", "first, then run `scripts/changes.sh`."),
        "guide.md": _MAIN.format(title="Release notes, step by step") + "\nLeave out what nobody notices.\n",
        "style/voice.md": _STYLE,
        "scripts/changes.sh": _CHECK,
    }
    for files in (first, second):
        answer = await world.push(skill_id, bundle("release-notes", **files))
        assert answer.status_code == 201, answer.text
    return skill_id


async def _webhooks(world: World) -> str:
    alerts = {"url": "https://alerts.harbour.example/runs", "events": ["run.failed"], "description": "Alerts"}
    await _post(world, "/v1/webhooks", alerts)
    every = {"url": "https://ci.harbour.example/quarterdeck", "events": ["run.succeeded", "run.failed"]}
    webhook_id: str = (await _post(world, "/v1/webhooks", every))["id"]
    await _post(world, f"/v1/webhooks/{webhook_id}/test")
    return webhook_id


async def _conversation(world: World, session_id: str) -> None:
    await _submit(world, session_id, "Collect what changed since 2.3 and draft the notes.\ndemo: slow 2")
    await _submit(world, session_id, "Keep it to one page, please.")
    await at_rest(world, session_id)
    await _submit(world, session_id, "Send the draft to the mailing list.\ndemo: fail")
    await at_rest(world, session_id)
    await _submit(world, session_id, "Leave the list alone then. What is the **first** heading?")
    await at_rest(world, session_id)
    await add_report(world, session_id)


async def _requests(world: World) -> str:
    """A run that waits for each kind of answer that needs no crash. Returns the session that waits for an approval."""
    meter = await _session(world, "Meter readings", client_tools=[_tool("read_meter", "Reads the meter of a site.")])
    await _submit(world, meter, 'call: read_meter {"site": "Pier 4"}')
    limited = await _session(world, "Nightly import", limits={"run": {"max_tokens": 40}})
    await _submit(world, limited, "Import the orders of yesterday.")
    tools = [_tool("send_refund", "Sends money back to a customer.")]
    waiting = await _session(world, "Refunds of the week", client_tools=tools, tool_policy={"send_refund": "ask"})
    refund = '{"order": 2041, "amount": "48.00 EUR", "reason": "Delivered twice. The first parcel was returned."}'
    await _submit(world, waiting, f"call: send_refund {refund}")

    async def all_wait() -> bool:
        open_actions = await world.get("/v1/actions?state=open")
        return len(open_actions.json()["items"]) == 3

    await eventually(all_wait)
    return waiting


def _tool(name: str, description: str) -> dict[str, object]:
    return {"name": name, "description": description, "parameters": {"type": "object"}}


async def _submit(world: World, session_id: str, text: str) -> None:
    answer = await world.submit(session_id, text)
    assert answer.status_code == 200, answer.text


async def _session(world: World, title: str, **more: object) -> str:
    session_id: str = (await _post(world, "/v1/sessions", {"title": title, **more}))["id"]
    return session_id


async def _post(world: World, path: str, body: object = None, status: int = 201) -> dict[str, Any]:
    answer = await world.http.post(path, headers=world.headers(), json=body)
    assert answer.status_code == status, answer.text
    made: dict[str, Any] = answer.json()
    return made

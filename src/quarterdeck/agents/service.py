"""Operations on agents and their versions."""

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from quarterdeck.agents import checks, store
from quarterdeck.agents.configuration import AgentConfiguration, AgentReference, ConfigurationField, SessionSkill
from quarterdeck.agents.model import (
    AgentBody,
    AgentDiffBody,
    AgentPage,
    AgentVersionBody,
    AgentVersionPage,
    ChangeAgentBody,
    CreateAgentBody,
    FieldDiff,
    UsedVersion,
)
from quarterdeck.auth.access import Access, Lookup, visible_record, visible_workspace
from quarterdeck.changes.model import ObjectType
from quarterdeck.changes.perform import Changes, Made
from quarterdeck.connections.servers import service as mcp_servers
from quarterdeck.core import errors
from quarterdeck.core.actors import Permission, Principal
from quarterdeck.core.call import Answer, Call
from quarterdeck.core.ids import new_id
from quarterdeck.core.operation import ArchivedQuery, ErrorCase, VersionsQuery, operation
from quarterdeck.core.pages import PageRequest
from quarterdeck.core.versioned import VersionedState, VersionRules
from quarterdeck.db.database import Connection
from quarterdeck.models.catalog import ModelCatalog
from quarterdeck.models.output_schema import SchemaChecks
from quarterdeck.sandbox.choice import SandboxOffer
from quarterdeck.skills import service as skills
from quarterdeck.skills.diff import unified_diff

rules = VersionRules("An agent")
# Longest sum of both texts. Comparing more would hold the interpreter lock for too long.
_MAX_DIFF_CHARACTERS = 512 * 1024
_NAME_TAKEN = ErrorCase(
    "name_taken",
    errors.conflict(rules.name_taken),
    "Another active agent of the workspace has this name.",
    "Choose another name, or push a version to that agent.",
)


@operation(
    summary="Create an agent",
    description="A named configuration for sessions, in numbered versions. Its name is unique among the active agents "
    "of the workspace. The first version can be part of the request.",
    permission=Permission.AGENT_MANAGE,
    created=True,
    success="The new agent.",
    etag=True,
    idempotent=True,
    refusals=(_NAME_TAKEN,),
)
async def create_agent(
    access: Access,
    changes: Changes,
    models: ModelCatalog,
    schemas: SchemaChecks,
    sandbox: SandboxOffer,
    call: Call[CreateAgentBody],
) -> Answer[AgentBody]:
    async def effect(connection: Connection, principal: Principal, workspace_id: UUID, body: CreateAgentBody) -> Made:
        agent_id = new_id()
        await _check_name_free(connection, workspace_id, body.name)
        await store.add(connection, agent_id, workspace_id, body.name, principal.user_id)
        detail: dict[str, object] = {"name": body.name}
        if body.version is not None:
            version = await _checked_configuration(connection, models, sandbox, workspace_id, body.version)
            await store.add_version(connection, new_id(), workspace_id, agent_id, version, principal.user_id)
            detail["version"] = 1
        return Made.plain(await _shown(connection, workspace_id, agent_id), agent_id, body.name, **detail)

    lookup = visible_workspace(call)
    checked = await checks.checked_call(access, schemas, call, lookup, lambda body: body.version)
    return await changes.perform(checked, lookup, ObjectType.AGENT, effect)


@operation(
    summary="List the agents of a workspace",
    description="One page per call, newest first unless order=asc. Archived agents are listed separately.",
    permission=Permission.WORKSPACE_READ,
    success="One page. next_cursor is null on the last.",
    cursor_must_exist=False,
)
async def list_agents(access: Access, call: Call[None], request: PageRequest, query: ArchivedQuery) -> AgentPage:
    return await access.page(call, visible_workspace(call), AgentPage, request, store.page, filter_key=query.archived)


@operation(
    summary="Get an agent",
    permission=Permission.WORKSPACE_READ,
    success="The agent.",
    etag=True,
)
async def get_agent(access: Access, call: Call[None], agent_id: UUID) -> AgentBody:
    return await access.find(call, visible_agent(call, agent_id))


@operation(
    summary="Change or archive an agent",
    description="Omitted fields keep their values. Set `default_version` to roll back: sessions that pin no version "
    "use it from their next run on. An archived agent accepts no versions and no new sessions; its sessions continue. "
    "Another agent can take its name; then it needs a new one to be restored.",
    permission=Permission.AGENT_MANAGE,
    success="The updated agent.",
    etag=True,
    conditional=True,
    idempotent=True,
    refusals=(_NAME_TAKEN,),
)
async def change_agent(changes: Changes, call: Call[ChangeAgentBody], agent_id: UUID) -> Answer[AgentBody]:
    """A request that changes nothing keeps the revision and writes no audit entry."""

    async def effect(connection: Connection, principal: Principal, _: AgentBody, body: ChangeAgentBody) -> Made:
        workspace_id = principal.workspace_id
        # A separate statement, so that the next one sees what the previous holder of the lock committed.
        state = await _locked(connection, workspace_id, agent_id)
        call.check_unchanged(state.revision)
        changed = rules.changed(state, body)
        new = msgspec.structs.replace(state, **changed)
        rules.check_default_version(new)
        if rules.needs_free_name(state, new):
            await _check_name_free(connection, workspace_id, new.name)
        if changed:
            await store.change(connection, workspace_id, agent_id, new)
        agent = await _shown(connection, workspace_id, agent_id)
        return Made(
            shown=agent, kept=agent, object_id=agent_id, object_name=new.name, detail=changed, changed=bool(changed)
        )

    return await changes.perform(call, visible_agent(call, agent_id), ObjectType.AGENT, effect)


@operation(
    summary="Push a new version of an agent",
    description="Versions count from 1 without gaps and never change. Unless the agent has a default version, sessions "
    "that pin no version use the new one from their next run on.",
    permission=Permission.AGENT_MANAGE,
    created=True,
    success="The new version.",
    idempotent=True,
    conditional=True,
    refusals=(
        ErrorCase(
            "archived",
            errors.conflict(rules.archived),
            "The agent is archived.",
            "Unarchive it by setting `archived` to false.",
        ),
    ),
)
async def push_agent_version(
    access: Access,
    changes: Changes,
    models: ModelCatalog,
    schemas: SchemaChecks,
    sandbox: SandboxOffer,
    call: Call[AgentConfiguration],
    agent_id: UUID,
) -> Answer[AgentVersionBody]:
    """Pushes to one agent queue on the lock of its row."""

    async def effect(connection: Connection, principal: Principal, _: AgentBody, body: AgentConfiguration) -> Made:
        workspace_id = principal.workspace_id
        state = await _locked(connection, workspace_id, agent_id)
        call.check_unchanged(state.revision)
        rules.check_takes_versions(state)
        version = await _checked_configuration(connection, models, sandbox, workspace_id, body)
        version_id = new_id()
        number = await store.add_version(connection, version_id, workspace_id, agent_id, version, principal.user_id)
        assert number is not None
        made = await store.version(connection, workspace_id, agent_id, number)
        assert made is not None
        return Made.plain(made, version_id, state.name, agent_id=str(agent_id), version=number)

    lookup = visible_agent(call, agent_id)
    checked = await checks.checked_call(access, schemas, call, lookup, lambda body: body)
    return await changes.perform(checked, lookup, ObjectType.AGENT_VERSION, effect)


@operation(
    summary="List the versions of an agent",
    description="By number, newest first unless order=asc. Get a version for its content.",
    permission=Permission.WORKSPACE_READ,
    success="One page. next_cursor is null on the last.",
)
async def list_agent_versions(
    access: Access, call: Call[None], agent_id: UUID, request: PageRequest
) -> AgentVersionPage:
    return await access.page(call, visible_agent(call, agent_id), AgentVersionPage, request, store.versions)


@operation(
    summary="Get a version of an agent",
    description="Identical to the response of the push.",
    permission=Permission.WORKSPACE_READ,
    success="The version.",
)
async def get_agent_version(access: Access, call: Call[None], agent_id: UUID, version: int) -> AgentVersionBody:
    (found,) = await _versions(access, call, agent_id, version)
    return found


@operation(
    summary="Compare two versions of an agent",
    description="The fields that differ between `base` and `head`, with the changed lines of long ones.",
    permission=Permission.WORKSPACE_READ,
    success="The differences.",
    refusals=(
        ErrorCase(
            "no_version",
            errors.not_found("agent version"),
            "The agent has no version with one of these numbers.",
            "List the versions of the agent.",
        ),
    ),
)
async def diff_agent_versions(access: Access, call: Call[None], agent_id: UUID, query: VersionsQuery) -> AgentDiffBody:
    before, after = await _versions(access, call, agent_id, query.base, query.head)
    # Instructions may have a megabyte.
    return await asyncio.to_thread(compare_versions, before, after)


async def check_usable(
    connection: Connection, workspace_id: UUID, reference: AgentReference, *, was_used: bool = False
) -> None:
    """Raise if a session cannot use the agent. Sessions that already use an archived agent can use all its versions."""
    state = await store.state(connection, workspace_id, reference.agent_id)
    if state is None:
        raise errors.invalid("No such agent in this workspace.")
    rules.check_usable(state.latest_version, reference.version, is_archived=state.archived and not was_used)


async def check_skills(connection: Connection, workspace_id: UUID, wanted: Sequence[SessionSkill]) -> None:
    """A usable skill cannot be deleted until the transaction ends."""
    for skill in wanted:
        await skills.check_usable(connection, workspace_id, skill.skill_id, skill.version)


async def used_version(connection: Connection, workspace_id: UUID, reference: AgentReference) -> UsedVersion:
    """What a session with this agent uses now. Versions are never deleted."""
    found = await store.used(connection, workspace_id, [reference], summaries=False)
    return found[reference]


async def used_summaries(
    connection: Connection, workspace_id: UUID, references: Sequence[AgentReference]
) -> dict[AgentReference, UsedVersion]:
    """As `used_version`, for lists: without the fields of the configuration that may be long."""
    return await store.used(connection, workspace_id, references, summaries=True)


def visible_agent(call: Call[Any], agent_id: UUID) -> Lookup[AgentBody]:
    return visible_record(call, "agent", store.get, agent_id)


async def _checked_configuration(
    connection: Connection,
    models: ModelCatalog,
    sandbox: SandboxOffer,
    workspace_id: UUID,
    configuration: AgentConfiguration,
) -> AgentConfiguration:
    """As it is stored: with the default of the server if it does not say whether there is a sandbox."""
    checks.check_configuration(models, configuration)
    await check_skills(connection, workspace_id, configuration.skills)
    if configuration.mcp_servers:
        await mcp_servers.check_exist(connection, workspace_id, configuration.mcp_servers)
    return msgspec.structs.replace(configuration, sandbox=sandbox.chosen(configuration.sandbox))


async def _check_name_free(connection: Connection, workspace_id: UUID, name: str) -> None:
    """For a clear message. Of two concurrent changes the index refuses the second, which then comes here again."""
    if await store.is_name_taken(connection, workspace_id, name):
        raise errors.conflict(rules.name_taken)


async def _locked(connection: Connection, workspace_id: UUID, agent_id: UUID) -> VersionedState:
    state = await store.lock(connection, workspace_id, agent_id)
    # Agents are never deleted, and this one was visible.
    assert state is not None
    return state


async def _shown(connection: Connection, workspace_id: UUID, agent_id: UUID) -> AgentBody:
    agent = await store.get(connection, workspace_id, agent_id)
    assert agent is not None
    return agent


async def _versions(access: Access, call: Call[None], agent_id: UUID, *numbers: int) -> list[AgentVersionBody]:
    visible = visible_agent(call, agent_id)

    async def lookup(connection: Connection, principal: Principal) -> list[AgentVersionBody]:
        await visible(connection, principal)
        found = [await store.version(connection, principal.workspace_id, agent_id, number) for number in numbers]
        seen = [version for version in found if version is not None]
        if len(seen) < len(numbers):
            raise errors.not_found("agent version")
        return seen

    return await access.find(call, lookup)


def compare_versions(base: AgentVersionBody, head: AgentVersionBody) -> AgentDiffBody:
    fields = []
    for field in ConfigurationField:
        before, after = (msgspec.to_builtins(getattr(version, field)) for version in (base, head))
        if before != after:
            fields.append(FieldDiff(field, before, after, _diff(field, before, after)))
    return AgentDiffBody(base.version, head.version, fields)


def _diff(field: ConfigurationField, before: Any, after: Any) -> str | None:
    if not before and not after:
        return None
    if isinstance(before, dict | list) or isinstance(after, dict | list):
        before, after = _json(before), _json(after)
    elif field is not ConfigurationField.INSTRUCTIONS:
        return None
    if len(before or "") + len(after or "") > _MAX_DIFF_CHARACTERS:
        return None
    return unified_diff(field, before, after)


def _json(value: Any) -> str | None:
    """Sorted, so that the order of names makes no difference."""
    if value is None:
        return None
    return msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=2).decode() + "\n"

"""HTTP handlers of agents."""

from quarterdeck.agents import rules, service
from quarterdeck.agents.configuration import AgentConfiguration
from quarterdeck.agents.model import (
    AgentBody,
    AgentDiffBody,
    AgentPage,
    AgentVersionBody,
    AgentVersionPage,
    ChangeAgentBody,
    CreateAgentBody,
)
from quarterdeck.auth.access import Access
from quarterdeck.changes.perform import Changes
from quarterdeck.core import errors
from quarterdeck.core.actors import Permission
from quarterdeck.core.call import Answer
from quarterdeck.http.operation import Query, Refusal, operation
from quarterdeck.http.request import Request
from quarterdeck.http.schemas import NUMBER
from quarterdeck.models.catalog import ModelCatalog
from quarterdeck.models.output_schema import SchemaChecks

_NAME_TAKEN = Refusal(
    "name_taken",
    errors.conflict(rules.NAME_TAKEN),
    "Another active agent of the workspace has this name.",
    "Choose another name, or push a version to that agent.",
)


@operation(
    summary="Create an agent",
    description="A named configuration for sessions, in numbered versions. Its name is unique among the active agents "
    "of the workspace. The first version can be part of the request.",
    permission=Permission.AGENT_MANAGE,
    payload=CreateAgentBody,
    success_status=201,
    success_type=AgentBody,
    success="The new agent.",
    etag=True,
    idempotent=True,
    refusals=(_NAME_TAKEN,),
)
async def create_agent(
    request: Request, access: Access, changes: Changes, models: ModelCatalog, schemas: SchemaChecks
) -> Answer:
    return await service.create_agent(access, changes, models, schemas, await request.call(CreateAgentBody))


@operation(
    summary="List the agents of a workspace",
    description="One page per call, newest first unless order=asc. Archived agents are listed separately.",
    permission=Permission.WORKSPACE_READ,
    success_type=AgentPage,
    success="One page. next_cursor is null on the last.",
    paged=True,
    cursor_must_exist=False,
    queries=(Query("archived", {"type": "boolean", "default": False}, "List archived agents instead."),),
)
async def list_agents(request: Request, access: Access) -> AgentPage:
    page, archived = request.page_request(), request.query_flag("archived")
    return await service.list_agents(access, request.call_without_body(), page, archived=archived)


@operation(
    summary="Get an agent",
    permission=Permission.WORKSPACE_READ,
    success_type=AgentBody,
    success="The agent.",
    etag=True,
)
async def get_agent(request: Request, access: Access) -> AgentBody:
    agent_id = request.path_id("agent_id")
    return await service.get_agent(access, request.call_without_body(), agent_id)


@operation(
    summary="Change or archive an agent",
    description="Omitted fields keep their values. Set `default_version` to roll back: sessions that pin no version "
    "use it from their next run on. An archived agent accepts no versions and no new sessions; its sessions continue. "
    "Another agent can take its name; then it needs a new one to be restored.",
    permission=Permission.AGENT_MANAGE,
    payload=ChangeAgentBody,
    success_type=AgentBody,
    success="The updated agent.",
    etag=True,
    conditional=True,
    idempotent=True,
    refusals=(_NAME_TAKEN,),
)
async def change_agent(request: Request, changes: Changes) -> Answer:
    agent_id = request.path_id("agent_id")
    return await service.change_agent(changes, await request.call(ChangeAgentBody), agent_id)


@operation(
    summary="Push a new version of an agent",
    description="Versions count from 1 without gaps and never change. Unless the agent has a default version, sessions "
    "that pin no version use the new one from their next run on.",
    permission=Permission.AGENT_MANAGE,
    payload=AgentConfiguration,
    success_status=201,
    success_type=AgentVersionBody,
    success="The new version.",
    idempotent=True,
    conditional=True,
    refusals=(
        Refusal(
            "archived",
            errors.conflict(rules.ARCHIVED),
            "The agent is archived.",
            "Unarchive it by setting `archived` to false.",
        ),
    ),
)
async def push_agent_version(
    request: Request, access: Access, changes: Changes, models: ModelCatalog, schemas: SchemaChecks
) -> Answer:
    agent_id = request.path_id("agent_id")
    return await service.push_agent_version(
        access, changes, models, schemas, await request.call(AgentConfiguration), agent_id
    )


@operation(
    summary="List the versions of an agent",
    description="By number, newest first unless order=asc. Get a version for its content.",
    permission=Permission.WORKSPACE_READ,
    success_type=AgentVersionPage,
    success="One page. next_cursor is null on the last.",
    paged=True,
)
async def list_agent_versions(request: Request, access: Access) -> AgentVersionPage:
    agent_id, page = request.path_id("agent_id"), request.page_request()
    return await service.list_agent_versions(access, request.call_without_body(), agent_id, page)


@operation(
    summary="Get a version of an agent",
    description="Identical to the response of the push.",
    permission=Permission.WORKSPACE_READ,
    success_type=AgentVersionBody,
    success="The version.",
)
async def get_agent_version(request: Request, access: Access) -> AgentVersionBody:
    agent_id, number = request.path_id("agent_id"), request.path_number("version")
    return await service.get_agent_version(access, request.call_without_body(), agent_id, number)


@operation(
    summary="Compare two versions of an agent",
    description="The fields that differ between `base` and `head`, with the changed lines of long ones.",
    permission=Permission.WORKSPACE_READ,
    success_type=AgentDiffBody,
    success="The differences.",
    queries=(
        Query("base", NUMBER, "Number of the old version.", required=True, example=1),
        Query("head", NUMBER, "Number of the new version.", required=True, example=2),
    ),
    refusals=(
        Refusal(
            "no_version",
            errors.not_found("agent version"),
            "The agent has no version with one of these numbers.",
            "List the versions of the agent.",
        ),
    ),
)
async def diff_agent_versions(request: Request, access: Access) -> AgentDiffBody:
    agent_id = request.path_id("agent_id")
    # A missing number is recorded as a fault, which is raised before the number is used.
    base = request.query_number("base", required=True) or 0
    head = request.query_number("head", required=True) or 0
    return await service.diff_agent_versions(access, request.call_without_body(), agent_id, base, head)

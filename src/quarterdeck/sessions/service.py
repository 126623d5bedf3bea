"""Operations on sessions."""

from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, field

from quarterdeck.agents import checks
from quarterdeck.agents import service as agents
from quarterdeck.agents.configuration import AgentConfiguration, ConfigurationField
from quarterdeck.auth.access import Access, visible_session, visible_workspace
from quarterdeck.changes.model import ObjectType
from quarterdeck.changes.perform import Changes, Made
from quarterdeck.connections.servers import service as mcp_servers
from quarterdeck.core import errors
from quarterdeck.core.actors import Permission, Principal
from quarterdeck.core.call import Answer, Call
from quarterdeck.core.ids import new_id
from quarterdeck.core.operation import ArchivedQuery, ErrorCase, Text, operation
from quarterdeck.core.pages import PageRequest, take_page
from quarterdeck.core.settings import ForkSettings
from quarterdeck.db.database import Connection, Database
from quarterdeck.events.log import lock_session
from quarterdeck.models.catalog import ModelCatalog
from quarterdeck.models.output_schema import SchemaChecks
from quarterdeck.runs import action_records as actions
from quarterdeck.runs import lifecycle
from quarterdeck.runs.model import RunSetup, UsedSkill
from quarterdeck.sandbox.choice import SandboxOffer
from quarterdeck.session_files import service as session_files
from quarterdeck.sessions import forks, inheritance, rules, store
from quarterdeck.sessions.model import (
    ChangeSessionBody,
    CreateSessionBody,
    ForkSessionBody,
    NewSession,
    SearchIn,
    SessionAgent,
    SessionBody,
    SessionPage,
    configuration_of,
)
from quarterdeck.skills import service as skills

# The longest possible title.
_SEARCH_CHARACTERS = 200


class SessionQuery(ArchivedQuery, frozen=True):
    search: Annotated[
        Annotated[Text, Meta(max_length=_SEARCH_CHARACTERS)] | None,
        Meta(
            description="Only those whose title contains this, in capitals or not. Empty: all. With in=conversations: "
            "those whose messages have these words, in capitals or not; quotes keep words together, `or` and `-` work "
            "as in web searches.",
            examples=["incident"],
        ),
    ] = None
    in_: Annotated[
        SearchIn,
        Meta(
            description="Where to search: in titles, or in the texts of inputs that a run has read and of the agent's "
            "messages."
        ),
    ] = field(name="in", default=SearchIn.TITLES)


# Events deleted per transaction. They hold up to a megabyte each, and a batch must stay below the statement timeout.
_PURGE_BATCH = 100


@operation(
    summary="Create a session",
    permission=Permission.SESSION_MANAGE,
    created=True,
    success="The new session.",
    idempotent=True,
    etag=True,
)
async def create_session(
    access: Access,
    changes: Changes,
    models: ModelCatalog,
    schemas: SchemaChecks,
    sandbox: SandboxOffer,
    call: Call[CreateSessionBody],
) -> Answer[SessionBody]:
    async def effect(connection: Connection, principal: Principal, workspace_id: UUID, body: CreateSessionBody) -> Made:
        agent = AgentConfiguration()
        overrides: list[ConfigurationField] = []
        if body.agent:
            await agents.check_usable(connection, workspace_id, body.agent)
            agent = (await agents.used_version(connection, workspace_id, body.agent)).configuration
            overrides = sorted(inheritance.given_fields(body))
        await _check_given(connection, models, workspace_id, body, AgentConfiguration())
        configuration = inheritance.chosen(body, agent)
        configuration = msgspec.structs.replace(configuration, sandbox=sandbox.chosen(configuration.sandbox))
        session = NewSession(
            title=body.title, configuration=configuration, agent=body.agent or None, overrides=overrides
        )
        session_id = new_id()
        await store.add(connection, session_id, workspace_id, session, principal.user_id)
        return Made.plain(await inheritance.existing(connection, models, workspace_id, session_id), session_id)

    lookup = visible_workspace(call)
    checked = await checks.checked_call(access, schemas, call, lookup, lambda body: body)
    return await changes.perform(checked, lookup, ObjectType.SESSION, effect)


@operation(
    summary="Fork a session",
    description="A new session with the same settings, with the files of this one as they are now, and with its log, "
    "or the part before an event. ` (fork)` is added to its title. Inputs that no run has consumed and the active run "
    "are not copied. The copied runs exist only in the log: lists of runs contain those that the fork starts itself.",
    permission=Permission.SESSION_MANAGE,
    created=True,
    success="The new session. The first event of its log is session.forked.",
    idempotent=True,
    etag=True,
    refusals=(
        ErrorCase(
            "fork_too_large",
            errors.conflict(errors.FORK_TOO_LARGE),
            "The log that would be copied has more events or bytes than the server's settings allow.",
            "Fork before an earlier event, or have the limits raised.",
        ),
    ),
)
async def fork_session(
    changes: Changes, models: ModelCatalog, settings: ForkSettings, call: Call[ForkSessionBody], session_id: UUID
) -> Answer[SessionBody]:
    async def effect(connection: Connection, principal: Principal, _: UUID, body: ForkSessionBody) -> Made:
        await prevent_deletion(connection, session_id)
        origin = await inheritance.existing(connection, models, principal.workspace_id, session_id)
        fork_id = await forks.fork(connection, origin, body.before_event_id, principal.user_id, settings)
        forked = await inheritance.existing(connection, models, principal.workspace_id, fork_id)
        return Made.plain(forked, fork_id, session_id=str(session_id), before_event_id=body.before_event_id)

    return await changes.perform(call, visible_session(call, session_id), ObjectType.SESSION, effect)


@operation(
    summary="List the sessions of a workspace",
    description="One page per call, newest first unless order=asc.",
    permission=Permission.WORKSPACE_READ,
    success="One page. next_cursor is null on the last page.",
    cursor_must_exist=False,
)
async def list_sessions(
    access: Access,
    models: ModelCatalog,
    call: Call[None],
    request: PageRequest,
    query: SessionQuery,
) -> SessionPage:
    async def show(connection: Connection, _: Principal, workspace_id: UUID) -> SessionPage:
        items, next_cursor = await take_page(
            request,
            store.page,
            connection,
            workspace_id,
            default_model=models.default,
            archived=query.archived,
            search=query.search or None,
            in_conversations=query.in_ is SearchIn.CONVERSATIONS,
        )
        return SessionPage(await inheritance.listed(connection, models, workspace_id, items), next_cursor)

    return await access.read(call, visible_workspace(call), show)


@operation(
    summary="Get a session",
    permission=Permission.WORKSPACE_READ,
    success="The session. Its messages are in its log.",
    session_token=True,
    etag=True,
)
async def get_session(access: Access, models: ModelCatalog, call: Call[None], session_id: UUID) -> SessionBody:
    async def show(connection: Connection, principal: Principal, _: UUID) -> SessionBody:
        return await inheritance.existing(connection, models, principal.workspace_id, session_id)

    return await access.read(call, visible_session(call, session_id), show)


@operation(
    summary="Change or archive a session",
    description="Changes only the given fields. tool_policy and limits apply at once; the active run keeps the rest as "
    "it was at its start. Runs that wait at a limit continue soon after it was raised or removed. An archived session "
    "answers input with 409; inputs that it has accepted are still processed.",
    permission=Permission.SESSION_MANAGE,
    success="The changed session.",
    idempotent=True,
    etag=True,
    conditional=True,
)
async def change_session(
    access: Access,
    changes: Changes,
    models: ModelCatalog,
    schemas: SchemaChecks,
    sandbox: SandboxOffer,
    call: Call[ChangeSessionBody],
    session_id: UUID,
) -> Answer[SessionBody]:
    async def effect(connection: Connection, principal: Principal, _: UUID, change: ChangeSessionBody) -> Made:
        stored = await _locked(connection, models, principal.workspace_id, session_id)
        call.check_unchanged(stored.revision)
        before = await inheritance.with_agent(connection, models, stored)
        own = configuration_of(before)
        await _check_given(connection, models, principal.workspace_id, change, own)
        after = rules.changed(before, change, datetime.now(UTC))
        after = await _with_changed_agent(connection, before, after, change)
        if after.sandbox != before.sandbox:
            sandbox.check(after.sandbox)
        after = msgspec.structs.replace(after, effective_model=models.effective(after.model))
        if after != before:
            after = msgspec.structs.replace(after, revision=before.revision + 1)
            await store.change(connection, inheritance.stored(stored, after, change))
        # Also if the session has these values already: it is the newest word about the limits of a run.
        if rules.sets_limits(change):
            await store.forget_raised_limits(connection, after, rules.replaced_run_limits(change))
        fields = rules.changed_fields(before, after)
        return Made.plain(after, session_id, None, after != before, fields=fields)

    lookup = visible_session(call, session_id)
    checked = await checks.checked_call(access, schemas, call, lookup, lambda body: body)
    return await changes.perform(checked, lookup, ObjectType.SESSION, effect)


@operation(
    summary="Delete a session",
    description="Permanently deletes the session with its log, runs, files and tokens. Its active run is cancelled. "
    "Deleting again returns 404.",
    permission=Permission.SESSION_MANAGE,
    success="The session is deleted.",
    conditional=True,
)
async def delete_session(changes: Changes, models: ModelCatalog, call: Call[None], session_id: UUID) -> Answer[None]:
    """Deletes the session and cancels its runs. Its log, actions and files are deleted later, by
    `purge_deleted_sessions`."""

    async def effect(connection: Connection, principal: Principal, _: UUID, __: None) -> Made:
        session = await _locked(connection, models, principal.workspace_id, session_id)
        call.check_unchanged(session.revision)
        await lifecycle.cancel_all(connection, session_id, principal.workspace_id)
        await store.delete(connection, principal.workspace_id, session_id)
        return Made.plain(None, session_id)

    return await changes.perform(call, visible_session(call, session_id), ObjectType.SESSION, effect)


async def purge_deleted_sessions(database: Database) -> int:
    """Deletes the logs, actions and files of deleted sessions in batches. Safe to run in several processes at once."""
    purged = 0

    async def purge(connection: Connection) -> bool | None:
        session_id = await store.lock_deleted(connection)
        if session_id is None:
            return None
        for purge_rows in (store.purge_search, actions.purge, session_files.purge):
            if await purge_rows(connection, session_id, _PURGE_BATCH) == _PURGE_BATCH:
                return False
        return await store.purge(connection, session_id, _PURGE_BATCH)

    while (was_last := await database.transaction(purge, repeatable=True)) is not None:
        purged += was_last
    return purged


async def prevent_deletion(connection: Connection, session_id: UUID) -> None:
    """Until the transaction ends. For callers that add rows which refer to the session."""
    if not await store.prevent_deletion(connection, session_id):
        raise errors.not_found("session")


tool_policy = store.tool_policy


async def run_setup(connection: Connection, models: ModelCatalog, session_id: UUID) -> RunSetup:
    """For a run that begins now. The caller holds the session's lock if the session has an agent."""
    followed = await inheritance.follow(connection, session_id)
    configuration = followed.configuration
    # After the skills of the agent were stored.
    versions = await skills.of_session(connection, session_id) if followed.has_skills else []
    return RunSetup(
        model=models.effective(configuration.model),
        settings=configuration.settings,
        instructions=configuration.instructions,
        skills=[UsedSkill(version.skill_id, version.name, version.version) for version in versions],
        client_tools=configuration.client_tools,
        sandbox=configuration.sandbox or None,
        agent=followed.agent,
        mcp_servers=configuration.mcp_servers,
        output_schema=configuration.output_schema,
        fallback_models=configuration.fallback_models,
    )


async def _check_given(
    connection: Connection,
    models: ModelCatalog,
    workspace_id: UUID,
    body: CreateSessionBody | ChangeSessionBody,
    own: AgentConfiguration,
) -> None:
    """Checks the fields that the caller sets. What the session has already may have become unusable and may stay: the
    provider of a model may have been removed, or a later release has a built-in tool of the same name."""
    if body.model is not UNSET and body.model != own.model:
        checks.check_model(models, body.model)
    if body.fallback_models is not UNSET and body.fallback_models != own.fallback_models:
        checks.check_fallback_models(models, body.fallback_models)
    names = {tool.name for tool in own.client_tools}
    checks.check_names_free([tool for tool in body.client_tools or [] if tool.name not in names])
    checks.check_distinct_skills(body.skills or [])
    added_skills = [skill for skill in body.skills or [] if skill not in own.skills]
    await agents.check_skills(connection, workspace_id, added_skills)
    checks.check_distinct_servers(body.mcp_servers or [])
    if added_servers := [one for one in body.mcp_servers or [] if one not in own.mcp_servers]:
        await mcp_servers.check_exist(connection, workspace_id, added_servers)


async def _with_changed_agent(
    connection: Connection, before: SessionBody, after: SessionBody, change: ChangeSessionBody
) -> SessionBody:
    """`after` with the agent and the overrides of the change, and what it then has from the agent."""
    reference = inheritance.agent_reference(before) if change.agent is UNSET else change.agent
    inheritance.check_inherit(change, has_agent=reference is not None)
    if reference is None:
        return msgspec.structs.replace(after, agent=None, overrides=[])
    agent = before.agent
    if change.agent:
        was_used = agent is not None and agent.agent_id == reference.agent_id
        await agents.check_usable(connection, before.workspace_id, reference, was_used=was_used)
    used = await agents.used_version(connection, before.workspace_id, reference)
    if change.agent:
        agent = SessionAgent(reference.agent_id, reference.version, used.name, used.version)
    overrides = inheritance.changed_overrides(before, change)
    values = inheritance.inherited(used.configuration, overrides)
    return msgspec.structs.replace(after, agent=agent, overrides=overrides, **values)


async def _locked(connection: Connection, models: ModelCatalog, workspace_id: UUID, session_id: UUID) -> SessionBody:
    """The session as stored, under its lock. It may have been deleted while waiting for the lock."""
    await lock_session(connection, session_id)
    return await inheritance.stored_session(connection, models, workspace_id, session_id)

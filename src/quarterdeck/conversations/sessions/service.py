"""Operations on sessions."""

from datetime import UTC, datetime
from typing import TypeVar
from uuid import UUID

import msgspec
from msgspec import UNSET

from quarterdeck.agents.built_in_tools import BUILT_IN_TOOLS
from quarterdeck.agents.catalog import ModelCatalog
from quarterdeck.agents.configuration import SessionSkill
from quarterdeck.agents.model import ModelFailure, ToolRule
from quarterdeck.audit.model import ObjectType
from quarterdeck.auth.access import Access, visible_workspace
from quarterdeck.changes.perform import Changes, Made
from quarterdeck.conversations.actions import records as actions
from quarterdeck.conversations.events.log import lock_session
from quarterdeck.conversations.runs import lifecycle
from quarterdeck.conversations.runs.model import RunSetup, UsedSkill
from quarterdeck.conversations.sessions import forks, rules, search_store, store
from quarterdeck.conversations.sessions.model import (
    ChangeSessionBody,
    CreateSessionBody,
    ForkSessionBody,
    ListedSession,
    SearchIn,
    SessionBody,
    SessionPage,
)
from quarterdeck.conversations.sessions.sandbox_offer import SandboxOffer
from quarterdeck.conversations.visibility import visible_session
from quarterdeck.conversations.workspace_files import records as workspace_files
from quarterdeck.core import errors
from quarterdeck.core.actors import Permission, Principal
from quarterdeck.core.call import Answer, Call
from quarterdeck.core.ids import new_id
from quarterdeck.core.pages import PageRequest, take_page
from quarterdeck.core.settings import ForkSettings
from quarterdeck.db.database import Connection, Database
from quarterdeck.skills import service as skills

SessionChange = TypeVar("SessionChange", CreateSessionBody, ChangeSessionBody)

# Events deleted per transaction. They hold up to a megabyte each, and a batch must stay below the statement timeout.
_PURGE_BATCH = 100
# Events read per transaction, and when it stops early. The words of one text take up to a tenth of a second.
_BACKFILL_BATCH = 200
_BACKFILL_SECONDS = 1.0


async def create_session(
    changes: Changes, models: ModelCatalog, sandbox: SandboxOffer, call: Call[CreateSessionBody]
) -> Answer:
    async def effect(connection: Connection, principal: Principal, workspace_id: UUID, body: CreateSessionBody) -> Made:
        _check_model(models, body.model)
        rules.check_names_free(body.client_tools or [], BUILT_IN_TOOLS)
        await _check_skills(connection, workspace_id, body.skills)
        session_id = new_id()
        body = msgspec.structs.replace(body, workspace=sandbox.chosen(body.workspace))
        await store.add(connection, session_id, workspace_id, body, principal.user_id)
        return Made.plain(await _existing(connection, models, workspace_id, session_id), session_id)

    return await changes.perform(
        _with_checked_tools(call),
        operation="create_session",
        lookup=visible_workspace(call.workspace_id),
        permission=Permission.SESSION_MANAGE,
        resource=(),
        about=ObjectType.SESSION,
        effect=effect,
    )


async def fork_session(
    changes: Changes, models: ModelCatalog, settings: ForkSettings, call: Call[ForkSessionBody], session_id: UUID
) -> Answer:
    async def effect(connection: Connection, principal: Principal, _: UUID, body: ForkSessionBody) -> Made:
        await prevent_deletion(connection, session_id)
        origin = await _existing(connection, models, principal.workspace_id, session_id)
        fork_id = await forks.fork(connection, origin, body.before_event_id, principal.user_id, settings)
        forked = await _existing(connection, models, principal.workspace_id, fork_id)
        return Made.plain(forked, fork_id, session_id=str(session_id), before_event_id=body.before_event_id)

    return await changes.perform(
        call,
        operation="fork_session",
        lookup=visible_session(call.workspace_id, session_id, own_token=False),
        permission=Permission.SESSION_MANAGE,
        resource=(session_id,),
        about=ObjectType.SESSION,
        effect=effect,
    )


async def list_sessions(
    access: Access,
    models: ModelCatalog,
    call: Call[None],
    request: PageRequest,
    *,
    archived: bool,
    search: str | None,
    search_in: SearchIn,
) -> SessionPage:
    async def show(connection: Connection, _: Principal, workspace_id: UUID) -> SessionPage:
        async def fetch(start: UUID, count: int) -> list[ListedSession]:
            first = request.newest_first
            if search is not None and search_in is SearchIn.CONVERSATIONS:
                ids = await search_store.find(
                    connection, workspace_id, start, count, archived=archived, search=search, newest_first=first
                )
                return await store.found(connection, workspace_id, ids, models.default, newest_first=first)
            return await store.page(
                connection,
                workspace_id,
                start,
                count,
                models.default,
                archived=archived,
                search=search,
                newest_first=first,
            )

        items, next_cursor = await take_page(request, fetch, cursor_must_exist=False)
        return SessionPage(items, next_cursor)

    return await access.read(call, visible_workspace(call.workspace_id), Permission.WORKSPACE_READ, show)


async def get_session(access: Access, models: ModelCatalog, call: Call[None], session_id: UUID) -> SessionBody:
    async def show(connection: Connection, principal: Principal, _: UUID) -> SessionBody:
        return await _existing(connection, models, principal.workspace_id, session_id)

    lookup = visible_session(call.workspace_id, session_id, own_token=True)
    return await access.read(call, lookup, Permission.WORKSPACE_READ, show)


async def change_session(
    changes: Changes, models: ModelCatalog, sandbox: SandboxOffer, call: Call[ChangeSessionBody], session_id: UUID
) -> Answer:
    """A run keeps what it has read of the session when it began. The tool policy and limits apply at once."""

    async def effect(connection: Connection, principal: Principal, _: UUID, change: ChangeSessionBody) -> Made:
        before = await _locked(connection, models, principal.workspace_id, session_id)
        call.check_unchanged(before.revision)
        # The provider of a model that the session has already may have been removed; the model may stay.
        if change.model is not UNSET and change.model != before.model:
            _check_model(models, change.model)
        if change.client_tools is not UNSET:
            # As with skills: a later release may have a tool of the same name as one that the session has.
            names = {tool.name for tool in before.client_tools}
            added_tools = [tool for tool in change.client_tools if tool.name not in names]
            rules.check_names_free(added_tools, BUILT_IN_TOOLS)
        if change.skills is not UNSET:
            rules.check_distinct(change.skills)
            # Skills that the session has already may have become unusable; they may stay.
            added = [skill for skill in change.skills if skill not in before.skills]
            await _check_skills(connection, principal.workspace_id, added)
        if change.workspace is not UNSET and change.workspace is not before.workspace:
            sandbox.check(change.workspace)
        after = rules.changed(before, change, datetime.now(UTC))
        after = msgspec.structs.replace(after, effective_model=models.effective(after.model))
        if after != before:
            await store.change(connection, after)
        fields = rules.changed_fields(before, after)
        return Made(shown=after, kept=after, object_id=session_id, detail={"fields": fields}, changed=after != before)

    return await changes.perform(
        _with_checked_tools(call),
        operation="change_session",
        lookup=visible_session(call.workspace_id, session_id, own_token=False),
        permission=Permission.SESSION_MANAGE,
        resource=(session_id,),
        about=ObjectType.SESSION,
        effect=effect,
    )


async def delete_session(changes: Changes, models: ModelCatalog, call: Call[None], session_id: UUID) -> Answer:
    """Deletes the session and cancels its runs. Its log, actions and files are deleted later, by
    `purge_deleted_sessions`."""

    async def effect(connection: Connection, principal: Principal, _: UUID, __: None) -> Made:
        session = await _locked(connection, models, principal.workspace_id, session_id)
        call.check_unchanged(session.revision)
        await lifecycle.cancel_all(connection, session_id, principal.workspace_id)
        await store.delete(connection, principal.workspace_id, session_id)
        return Made(shown=None, kept=None, object_id=session_id)

    return await changes.perform(
        call,
        operation="delete_session",
        lookup=visible_session(call.workspace_id, session_id, own_token=False),
        permission=Permission.SESSION_MANAGE,
        resource=(session_id,),
        about=ObjectType.SESSION,
        effect=effect,
    )


async def purge_deleted_sessions(database: Database) -> int:
    """Deletes the logs, actions and files of deleted sessions in batches. Safe to run in several processes at once."""
    purged = 0

    async def purge(connection: Connection) -> bool | None:
        session_id = await store.lock_deleted(connection)
        if session_id is None:
            return None
        for purge_rows in (search_store.purge, actions.purge, workspace_files.purge):
            if await purge_rows(connection, session_id, _PURGE_BATCH) == _PURGE_BATCH:
                return False
        return await store.purge(connection, session_id, _PURGE_BATCH)

    while (was_last := await database.transaction(purge, repeatable=True)) is not None:
        purged += was_last
    return purged


async def backfill_search(database: Database) -> int:
    """Adds a batch of events from before the search existed. Returns the number of events read: 0 if nothing is left,
    or another process is doing it."""

    async def backfill(connection: Connection) -> int:
        return await search_store.backfill(connection, _BACKFILL_BATCH, _BACKFILL_SECONDS)

    return await database.transaction(backfill, repeatable=True)


async def prevent_deletion(connection: Connection, session_id: UUID) -> None:
    """Until the transaction ends. For callers that add rows which refer to the session."""
    if not await store.prevent_deletion(connection, session_id):
        raise errors.not_found("session")


async def tool_policy(connection: Connection, session_id: UUID) -> dict[str, ToolRule] | None:
    """None if there is no such session."""
    return await store.tool_policy(connection, session_id)


async def run_setup(connection: Connection, models: ModelCatalog, session_id: UUID) -> RunSetup:
    """For a run that begins now. The caller holds the session's lock and has found the run, so the session exists."""
    versions = await skills.of_session(connection, session_id)
    used = [UsedSkill(version.skill_id, version.name, version.version) for version in versions]
    setup = await store.run_setup(connection, session_id, models.default, used)
    assert setup is not None
    return setup


def _with_checked_tools(call: Call[SessionChange]) -> Call[SessionChange]:
    """Checked before the fingerprint of the body is made, which fails for schemas that are nested too deeply."""

    def read_body() -> SessionChange:
        body = call.read_body()
        rules.check_client_tools(body.client_tools)
        return rules.without_agent(body) if isinstance(body, CreateSessionBody) else body

    return msgspec.structs.replace(call, read_body=read_body)


def _check_model(models: ModelCatalog, name: str | None) -> None:
    try:
        if name is not None:
            models.check(name)
    except ModelFailure as fault:
        raise errors.invalid(str(fault)) from None


async def _check_skills(connection: Connection, workspace_id: UUID, session_skills: list[SessionSkill]) -> None:
    rules.check_distinct(session_skills)
    for skill in session_skills:
        await skills.check_usable(connection, workspace_id, skill.skill_id, skill.version)


async def _locked(connection: Connection, models: ModelCatalog, workspace_id: UUID, session_id: UUID) -> SessionBody:
    """The session under its lock. It may have been deleted while waiting for the lock."""
    await lock_session(connection, session_id)
    return await _existing(connection, models, workspace_id, session_id)


async def _existing(connection: Connection, models: ModelCatalog, workspace_id: UUID, session_id: UUID) -> SessionBody:
    session = await store.get(connection, workspace_id, session_id, models.default)
    if session is None:
        raise errors.not_found("session")
    return session

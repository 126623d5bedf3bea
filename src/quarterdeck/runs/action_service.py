"""Operations on actions: list, read and answer what runs wait for."""

from uuid import UUID

import msgspec
from msgspec import UNSET

from quarterdeck.auth.access import Access, Lookup
from quarterdeck.auth.service import caller_of
from quarterdeck.changes.audit.model import ObjectType
from quarterdeck.changes.perform import Changes, Made
from quarterdeck.core import errors
from quarterdeck.core.actors import Permission, Principal
from quarterdeck.core.call import Answer, Call
from quarterdeck.core.pages import PageRequest, take_page
from quarterdeck.db.database import Connection
from quarterdeck.events.log import lock_session
from quarterdeck.runs import action_records, action_rules, action_store
from quarterdeck.runs.action_model import (
    ActionBody,
    ActionFilter,
    ActionId,
    ActionPage,
    ActionState,
    Decision,
    ResolveActionBody,
)

# A page that reaches this size holds fewer actions than were asked for.
_PAGE_BYTES = 4 * 1024 * 1024


async def list_actions(
    access: Access,
    call: Call[None],
    filters: ActionFilter,
    request: PageRequest,
    page_bytes: int = _PAGE_BYTES,
) -> ActionPage:
    async def lookup(_: Connection, principal: Principal) -> UUID:
        if call.workspace_id not in (None, principal.workspace_id):
            raise errors.not_found("workspace")
        if not action_rules.may_see_actions(principal):
            raise errors.not_found("action")
        return principal.workspace_id

    async def show(connection: Connection, principal: Principal, workspace_id: UUID) -> ActionPage:
        wanted = filters
        if principal.session_id is not None:
            if filters.session_id not in (None, principal.session_id):
                return ActionPage([], None)
            wanted = msgspec.structs.replace(filters, session_id=principal.session_id)

        async def fetch(start: UUID, count: int) -> list[ActionId]:
            newest_first = request.newest_first
            return await action_store.page(connection, workspace_id, wanted, start, count, newest_first=newest_first)

        # The action of the cursor may have been deleted with its session, or may not match the filter any more.
        ids, next_cursor = await take_page(request, fetch, cursor_must_exist=False)
        items = await action_store.read(connection, workspace_id, ids, page_bytes)
        if items and items[-1].id != ids[-1].id:
            next_cursor = items[-1].id
        return ActionPage(items, next_cursor)

    return await access.read(call, lookup, Permission.WORKSPACE_READ, show)


async def get_action(access: Access, call: Call[None], action_id: UUID) -> ActionBody:
    return await access.find(call, _visible_action(call.workspace_id, action_id), Permission.WORKSPACE_READ)


async def resolve_action(changes: Changes, call: Call[ResolveActionBody], action_id: UUID) -> Answer:
    """The first answer counts. The run continues when none of its actions is open."""

    async def effect(connection: Connection, principal: Principal, found: ActionBody, body: ResolveActionBody) -> Made:
        await lock_session(connection, found.session_id)
        # Again: it may have been answered, expired, or deleted with its session while this waited for the lock.
        action = await action_store.get(connection, principal.workspace_id, action_id)
        if action is None:
            raise errors.not_found("action")
        action_rules.check_may_raise(principal, action, body)
        action_rules.check_answer(action, body)
        resolution = msgspec.to_builtins(body)
        if action.state is not ActionState.OPEN:
            action_rules.check_same_answer(action, resolution)
            return Made(shown=action, kept=action, object_id=action_id, changed=False)
        if body.decision is Decision.RAISE:
            await _raise_limit(connection, action, body)
        caller = await caller_of(connection, principal)
        resolved = await action_store.resolve(connection, action_id, caller, resolution)
        assert resolved is not None
        await action_records.report_closed(connection, principal.workspace_id, [resolved])
        await action_store.continue_run(connection, action.run_id)
        detail = {"session_id": str(action.session_id), "run_id": str(action.run_id), "kind": action.kind}
        detail |= {} if body.decision is UNSET else {"decision": body.decision}
        return Made.plain(resolved, action_id, action.tool or action.kind, **detail)

    def read_body() -> ResolveActionBody:
        answer = call.read_body()
        action_rules.check_storable(answer)
        return answer

    return await changes.perform(
        msgspec.structs.replace(call, read_body=read_body),
        operation="resolve_action",
        lookup=_visible_action(call.workspace_id, action_id),
        permission=Permission.SESSION_MANAGE,
        resource=(action_id,),
        about=ObjectType.ACTION,
        effect=effect,
    )


async def _raise_limit(connection: Connection, action: ActionBody, body: ResolveActionBody) -> None:
    used = await action_store.raise_limit(connection, action.id, body.max_cost_usd or None, body.max_tokens or None)
    if used is not None:
        raise action_rules.too_low(action, used)


def _visible_action(requested_id: UUID | None, action_id: UUID) -> Lookup[ActionBody]:
    async def lookup(connection: Connection, principal: Principal) -> ActionBody:
        action = await action_store.get(connection, principal.workspace_id, action_id)
        if (
            action is None
            or requested_id not in (None, principal.workspace_id)
            or not action_rules.may_see_actions(principal)
            or principal.session_id not in (None, action.session_id)
        ):
            raise errors.not_found("action")
        return action

    return lookup

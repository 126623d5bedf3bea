"""Operations on actions: list, read and answer what runs wait for."""

from typing import Any
from uuid import UUID

import msgspec
from msgspec import UNSET

from quarterdeck.auth.access import Access, Lookup
from quarterdeck.auth.service import caller_of
from quarterdeck.changes.model import ObjectType
from quarterdeck.changes.perform import Changes, Made
from quarterdeck.core import errors
from quarterdeck.core.actors import Permission, Principal
from quarterdeck.core.call import Answer, Call
from quarterdeck.core.operation import ErrorCase, operation
from quarterdeck.core.pages import PageRequest, take_page
from quarterdeck.db.database import Connection
from quarterdeck.events.log import lock_session
from quarterdeck.runs import action_records, action_rules, action_store
from quarterdeck.runs.action_model import ActionBody, ActionPage, ActionQuery, ActionState, Decision, ResolveActionBody

# A page that reaches this size holds fewer actions than were asked for.
_PAGE_BYTES = 4 * 1024 * 1024

_TOKENS = "A session token needs `may_resolve` and sees the actions of its session; other tokens get 404."


@operation(
    summary="List actions",
    description="What the runs of the workspace wait for, and what they have waited for. One page per call, newest "
    f"first unless order=asc. A page may hold fewer actions than `limit`. {_TOKENS}",
    permission=Permission.WORKSPACE_READ,
    success="One page. next_cursor is null on the last page.",
    cursor_must_exist=False,
    session_token=True,
)
async def list_actions(access: Access, call: Call[None], filters: ActionQuery, request: PageRequest) -> ActionPage:
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

        # The action of the cursor may have been deleted with its session, or may not match the filter any more.
        ids, next_cursor = await take_page(request, action_store.page, connection, workspace_id, filters=wanted)
        items = await action_store.read(connection, workspace_id, ids, _PAGE_BYTES)
        if items and items[-1].id != ids[-1].id:
            next_cursor = items[-1].id
        return ActionPage(items, next_cursor)

    return await access.read(call, lookup, show)


@operation(
    summary="Get an action",
    description=_TOKENS,
    permission=Permission.WORKSPACE_READ,
    success="The action.",
    session_token=True,
)
async def get_action(access: Access, call: Call[None], action_id: UUID) -> ActionBody:
    return await access.find(call, _visible_action(call, action_id))


@operation(
    summary="Resolve an action",
    description="Answers an open action. The run continues when none of its actions is open. The first answer counts; "
    f"the same answer again changes nothing. {_TOKENS}",
    permission=Permission.ACTION_RESOLVE,
    success="The resolved action.",
    idempotent=True,
    session_token=True,
    refusals=(
        ErrorCase(
            "may_not_raise",
            action_rules.may_not_raise(),
            "A session token raises a limit, or a key without `key.manage` raises the daily limit of the workspace.",
            "Use a key, for the daily limit one with `key.manage`, or answer `stop`.",
        ),
        ErrorCase(
            "answered_differently",
            errors.answered_differently("Ada Byron with an API key “deploys”"),
            "Another answer came first.",
            "Read the action: it has the answer, and who gave it.",
        ),
        ErrorCase(
            "action_expired",
            errors.conflict(errors.ACTION_EXPIRED),
            "Nobody answered before `expires_at`. It counts as denied.",
            "Send a new input if the call shall be made after all.",
        ),
        ErrorCase(
            "action_cancelled",
            errors.conflict(errors.ACTION_CANCELLED),
            "The run was cancelled.",
            "Nothing: no run waits for the answer.",
        ),
    ),
)
async def resolve_action(changes: Changes, call: Call[ResolveActionBody], action_id: UUID) -> Answer[ActionBody]:
    async def effect(connection: Connection, principal: Principal, found: ActionBody, body: ResolveActionBody) -> Made:
        await lock_session(connection, found.session_id)
        # Again: it may have been answered, expired, or deleted with its session while this waited for the lock.
        action = errors.existing(await action_store.get(connection, principal.workspace_id, action_id), "action")
        action_rules.check_may_raise(principal, action, body)
        action_rules.check_answer(action, body)
        resolution = msgspec.to_builtins(body)
        if action.state is not ActionState.OPEN:
            action_rules.check_same_answer(action, resolution)
            return Made.plain(action, action_id, None, False)
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

    checked = msgspec.structs.replace(call, read_body=read_body)
    return await changes.perform(checked, _visible_action(call, action_id), ObjectType.ACTION, effect)


async def _raise_limit(connection: Connection, action: ActionBody, body: ResolveActionBody) -> None:
    used = await action_store.raise_limit(connection, action.id, body.max_cost_usd or None, body.max_tokens or None)
    if used is not None:
        raise action_rules.too_low(action, used)


def _visible_action(call: Call[Any], action_id: UUID) -> Lookup[ActionBody]:
    async def lookup(connection: Connection, principal: Principal) -> ActionBody:
        action = await action_store.get(connection, principal.workspace_id, action_id)
        if (
            action is None
            or call.workspace_id not in (None, principal.workspace_id)
            or not action_rules.may_see_actions(principal)
            or principal.session_id not in (None, action.session_id)
        ):
            raise errors.not_found("action")
        return action

    return lookup

"""Two workspaces side by side: no statement that works for the one returns or changes a row of the other.

Every statement of every store is walked through, by the store's own functions and with the rights of the service. One
that is new and has no place in the walk fails the last test but one.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from types import ModuleType
from uuid import UUID

import msgspec
import pytest
from msgspec import Struct
from psycopg import AsyncConnection
from quarterdeck.core.actors import ActorBody, Credential, CredentialKind, Origin, Permission, Principal

from quarterdeck.activity import rules as activity_rules
from quarterdeck.activity import store as activity
from quarterdeck.activity.model import Window
from quarterdeck.api_keys import store as api_keys
from quarterdeck.api_keys.model import NewApiKey
from quarterdeck.audit import store as audit
from quarterdeck.audit.model import AuditFilter, Change, ObjectType
from quarterdeck.auth import last_used
from quarterdeck.auth import store as access
from quarterdeck.changes import store as receipts
from quarterdeck.conversations.events import log
from quarterdeck.conversations.events import store as events
from quarterdeck.conversations.events.model import EventType, NewEvent
from quarterdeck.conversations.runs import lifecycle_store as lifecycle
from quarterdeck.conversations.runs import recovery_store as recovery
from quarterdeck.conversations.runs import store as runs
from quarterdeck.conversations.runs.model import Submission, Verdict
from quarterdeck.conversations.session_tokens import store as session_tokens
from quarterdeck.conversations.session_tokens.model import NewSessionToken
from quarterdeck.conversations.sessions import store as sessions
from quarterdeck.conversations.sessions.model import CreateSessionBody, SessionBody, SessionSkill
from quarterdeck.core.ids import HIGHEST_ID, LOWEST_ID, new_id
from quarterdeck.core.settings import DatabaseSettings
from quarterdeck.db.arrays import text_array, uuid_array
from quarterdeck.db.database import connection_options
from quarterdeck.db.migrate import is_current
from quarterdeck.skills import store as skills
from quarterdeck.skills.model import NewVersion, Pushed, Pusher, PushVerdict, TouchedBundle
from quarterdeck.webhooks import delivery_store as deliveries
from quarterdeck.webhooks import store as webhooks
from quarterdeck.webhooks.model import (
    Claimed,
    DeliveryState,
    NewDelivery,
    NewWebhook,
    Outcome,
    Receiver,
    RunEvent,
    WebhookBody,
)
from quarterdeck.workspaces import store as workspaces
from tests.store.test_sql_prepares import ALL
from tests.store.two_workspaces import Remembering, Workspace, fill, plan, rows_of, tables
from tests.world import AS_OWNER, app_url

ALPHA, BRAVO = plan("a", "alpha"), plan("b", "bravo")
ORDERS = (True, False)
PLACES = {constant.text: constant.place for constant in ALL if not constant.is_the_owners}

Visit = Callable[[Remembering, Workspace, Workspace], Awaitable[object]]

# The object was seen before, by a statement that names the workspace, or was made just now in the same transaction.
AFTER_A_CHECK = {
    "the credential that was presented, found by its hash; nobody can name another's": (
        "access/store _API_KEYS",
        "access/store _SESSION_TOKENS",
        "access/store _HOLD_API_KEYS",
        "access/store _HOLD_SESSION_TOKENS",
        "access/store _SEIZE_API_KEYS",
        "access/store _KEY_CALLER",
        "access/store _TOKEN_CALLER",
        "access/last_used _FLUSH",
    ),
    "a lock, which neither returns nor changes anything": (
        "access/store _SEIZE",
        "events/log _LOCK",
        "idempotency/store _LOCK",
        "runs/lifecycle_store _LOCK_PLACES",
        "sessions/store _KEEP",
        "webhooks/store _LOCK_WORKSPACE",
    ),
    "finds out whose the session is: the check itself": ("sessions/store _WORKSPACE_OF", "events/store _HEADS"),
    "what hangs on the session that was seen": ("events/store _PAGE", "events/log _APPEND"),
    "adds a row, whose every id the caller has made, seen or checked": (
        "api_keys/store _ADD",
        "audit/store _ADD",
        "idempotency/store _SAVE",
        "session_tokens/store _ADD",
        "sessions/store _ADD",
        "sessions/store _ADD_SKILL",
        "skills/store _ADD",
        "webhooks/store _ADD",
        "webhooks/delivery_store _ADD",
    ),
    "the run that a worker's job names, or that a person was seen to see": (
        "runs/lifecycle_store _FIND",
        "runs/lifecycle_store _ACTIVE",
        "runs/lifecycle_store _ACTIVE_OF",
        "runs/lifecycle_store _START",
        "runs/lifecycle_store _INPUTS",
        "runs/lifecycle_store _TAKE",
        "runs/lifecycle_store _STEP",
        "runs/lifecycle_store _SUCCEED",
        "runs/lifecycle_store _FAIL",
        "runs/lifecycle_store _CANCEL",
        "runs/lifecycle_store _GIVE_BACK",
        "runs/lifecycle_store _CONTINUE_IN",
        "runs/lifecycle_store _JOURNAL",
        "runs/lifecycle_store _PARK",
        "runs/lifecycle_store _ABORT_JOBS",
        "sessions/store _AGENT_SETUP",
        "skills/store _OF_SESSION",
    ),
    "the delivery that a worker has claimed, and its webhook": (
        "webhooks/delivery_store _DELIVERED",
        "webhooks/delivery_store _RETRY",
        "webhooks/delivery_store _FAILED",
        "webhooks/delivery_store _GIVE_UP",
        "webhooks/delivery_store _FORGET",
        "webhooks/store _RECEIVERS",
        "webhooks/store _NOTE_SUCCESS",
        "webhooks/store _NOTE_FAILURE",
        "webhooks/store _DISABLE",
        "webhooks/store _DISABLE_FAILING",
        "webhooks/store _RESEAL",
    ),
    "the deleted session whose log is being removed": (
        "sessions/store _PURGE_EVENTS",
        "sessions/store _PURGE_RECEIPTS",
        "sessions/store _FORGET_DELETED",
    ),
    "the operator's: people belong to no workspace, and a new workspace to nobody else": (
        "workspaces/store _ADD_USER",
        "workspaces/store _USER",
        "workspaces/store _NAME_USER",
        "workspaces/store _WORKSPACES_OF_USER",
        "workspaces/store _ADD_WORKSPACE",
        "workspaces/store _ADD_MEMBER",
    ),
}
# These know no workspace. What they must leave alone is shown by their visits.
OF_ALL_WORKSPACES = {
    "removes what is past its time, whose ever it is": (
        "audit/store _EXPIRE",
        "idempotency/store _SWEEP",
        "sessions/store _DELETED",
        "webhooks/delivery_store _DELETE_OLD",
    ),
    "looks after the jobs of all runs": (
        "runs/recovery_store _PRUNE",
        "runs/recovery_store _REPLACE_LOST",
        "runs/recovery_store _DELETE_SPENT",
        "runs/recovery_store _ADD_MISSING",
        "runs/recovery_store _FILL_PLACES",
    ),
    "archives go by their content": (
        "skills/store _TOUCH_BUNDLES",
        "skills/store _OLD_BUNDLES",
        "skills/store _LOCK_OLD_BUNDLE",
        "skills/store _BUNDLE_IN_USE",
        "skills/store _CONDEMN_BUNDLE",
        "skills/store _CONDEMNED_BUNDLES",
        "skills/store _FORGET_BUNDLE",
    ),
    "a worker takes what is due": ("webhooks/delivery_store _CLAIM",),
    "tells every process; payloads name sessions and are told apart by their readers": ("events/store _NOTIFY",),
    "the operator's, who sees all": (
        "webhooks/store _SEALED",
        "workspaces/store _ALL",
        "workspaces/store _LOCK_FIRST_START",
        "workspaces/store _ANY_WORKSPACE",
    ),
    "about the schema": ("db/migrate _APPLIED", "db/migrate _KNOWN"),
}


async def refused(call: Awaitable[object]) -> None:
    """By a store that takes for granted that the row is there."""
    with pytest.raises(AssertionError):
        await call


async def counted(call: Awaitable[object], expected: object) -> None:
    """Numbers bear no mark."""
    assert await call == expected


def new_version(by: Workspace, skill_id: UUID) -> NewVersion:
    return NewVersion(
        secret_hash=by.key_hash,
        origin=Origin(),
        if_match=None,
        idempotency_key=None,
        fingerprint=None,
        id=new_id(),
        skill_id=skill_id,
        bundle_sha256=by.bundle,
        bundle_bytes=1,
        frontmatter="{}",
        manifest="{}",
    )


def session_of(workspace: Workspace, session: Workspace) -> SessionBody:
    return SessionBody(
        id=session.session,
        workspace_id=workspace.workspace,
        title="taken",
        model=None,
        instructions=None,
        skills=[],
        created_at=datetime.now(UTC),
        created_by=ActorBody(workspace.user, None, workspace.email),
        archived_at=None,
        revision=7,
    )


def webhook_of(webhook: Workspace) -> WebhookBody:
    return WebhookBody(
        id=webhook.webhook,
        url="https://taken.example.com/",
        events=[RunEvent.FAILED],
        description="taken",
        enabled=False,
        disabled_reason="taken",
        previous_secret_expires_at=None,
        created_at=datetime.now(UTC),
        created_by=ActorBody(webhook.user, None, webhook.email),
        revision=7,
    )


def submission(mine: Workspace, kind: CredentialKind, session: Workspace, header: Workspace | None) -> Submission:
    secret_hash = mine.key_hash if kind is CredentialKind.API_KEY else mine.token_hash
    return Submission(
        credential=Credential(kind, secret_hash),
        session_id=session.session,
        workspace_id=None if header is None else header.workspace,
        text=b"taken",
        idempotency_key=b"the same",
        fingerprint=b"",
        is_known=True,
    )


async def verdicts(c: Remembering, *batch: Submission) -> list[Verdict]:
    submitted = await runs.submit(c, batch)
    # The one statement that is sent without a cursor.
    c.statements.append(runs._SUBMIT)
    c.answers.extend(map(repr, submitted))
    return [one.verdict for one in submitted]


def with_foreign_ids() -> Iterator[Visit]:
    """As a caller of one workspace would who has got hold of the other's ids. The scope is the workspace, or the
    session, skill or webhook in it that was seen."""
    window = activity_rules.window(datetime.now(UTC) + timedelta(seconds=1), 60)
    yield lambda c, a, b: counted(_states(c, a, window), {"running": 1, "queued": 1, "succeeded": 1})
    yield lambda c, a, b: counted(activity.run_limit_time(c, a.workspace, window, 3), None)
    later = datetime.now(UTC) + timedelta(minutes=1)
    yield lambda c, a, b: counted(activity.active_before(c, a.workspace, later, 9), {"running": 1, "queued": 1})
    yield lambda c, a, b: counted(_inputs(c, a, window), 1)
    yield lambda c, a, b: counted(activity.input_limit_time(c, a.workspace, window, 1), None)

    yield lambda c, a, b: counted(api_keys.get(c, a.workspace, b.key), None)
    yield lambda c, a, b: api_keys.active_of_user(c, a.workspace, b.user)
    yield lambda c, a, b: api_keys.revoke_all(c, a.workspace, [b.key])
    yield lambda c, a, b: api_keys.max_days(c, a.workspace)
    yield lambda c, a, b: refused(api_keys.lock(c, a.workspace, b.key))
    yield lambda c, a, b: api_keys.replace(c, a.workspace, b.key, a.key, 0)
    yield lambda c, a, b: api_keys.revoke(c, a.workspace, b.key)
    yield lambda c, a, b: api_keys.of_user(c, a.workspace, b.user)

    claim = (ALPHA.key, "create_session", BRAVO.name, b"")
    yield lambda c, a, b: counted(receipts.find(c, receipts.Claim(*claim)), None)

    yield lambda c, a, b: counted(lifecycle.running(c, a.workspace), 1)
    yield lambda c, a, b: lifecycle.unpark_next(c, a.workspace)
    for kind in CredentialKind:
        for header in (None, ALPHA, BRAVO):
            known = submission(ALPHA, kind, BRAVO, header)
            foreign = [known, msgspec.structs.replace(known, is_known=False)]
            yield lambda c, a, b, foreign=foreign: counted(verdicts(c, *foreign), [Verdict.NOT_FOUND] * 2)  # type: ignore[misc]
    yield lambda c, a, b: counted(runs.get(c, a.workspace, b.run), None)

    yield lambda c, a, b: counted(session_tokens.get(c, a.session, b.token), None)
    yield lambda c, a, b: session_tokens.revoke(c, a.session, b.token)

    yield lambda c, a, b: sessions.change(c, session_of(a, b))
    yield lambda c, a, b: counted(sessions.get(c, a.workspace, b.session), None)
    yield lambda c, a, b: sessions.delete(c, a.workspace, b.session)

    yield lambda c, a, b: counted(skills.get(c, a.workspace, b.skill), None)
    yield lambda c, a, b: skills.change(c, a.workspace, b.skill, "taken", None, archived=True)
    yield lambda c, a, b: counted(skills.version(c, a.workspace, b.skill, 1), None)
    yield lambda c, a, b: counted(skills.usable(c, a.workspace, b.skill, 1), None)
    yield lambda c, a, b: counted(skills.push(c, new_version(a, b.skill)), Pushed(PushVerdict.NOT_FOUND, None, None))
    yield lambda c, a, b: counted(skills.may_push(c, [Pusher(a.key_hash, b.skill, None)]), [None])
    yield lambda c, a, b: refused(skills.lock(c, a.workspace, b.skill))

    yield lambda c, a, b: counted(webhooks.count(c, a.workspace), 1)
    yield lambda c, a, b: counted(webhooks.get(c, a.workspace, b.webhook), None)
    yield lambda c, a, b: webhooks.lock(c, a.workspace, b.webhook)
    yield lambda c, a, b: webhooks.change(c, a.workspace, webhook_of(b), "taken")
    yield lambda c, a, b: webhooks.rotate(c, a.workspace, b.webhook, b"taken", 60)
    yield lambda c, a, b: webhooks.delete(c, a.workspace, b.webhook)
    yield lambda c, a, b: webhooks.wanting(c, a.workspace, RunEvent.SUCCEEDED)
    yield lambda c, a, b: counted(deliveries.get(c, a.workspace, b.webhook, b.delivery), None)
    yield lambda c, a, b: counted(deliveries.get(c, a.workspace, a.webhook, b.delivery), None)
    yield lambda c, a, b: deliveries.send_again(c, a.webhook, b.delivery)

    yield lambda c, a, b: workspaces.lock_workspace(c, a.workspace)
    yield lambda c, a, b: workspaces.change(c, a.workspace, "taken", 1, a.user)
    yield lambda c, a, b: workspaces.get(c, a.workspace)
    yield lambda c, a, b: counted(workspaces.end_member(c, a.workspace, b.user), False)
    yield lambda c, a, b: counted(workspaces.find_member(c, a.workspace, b.email), None)
    for newest_first in ORDERS:
        yield from _pages(newest_first=newest_first)


def _pages(*, newest_first: bool) -> Iterator[Visit]:
    """From the other's objects on, and from the very beginning."""
    order = {"newest_first": newest_first}
    beginning = HIGHEST_ID if newest_first else LOWEST_ID
    filters = (
        AuditFilter(),
        AuditFilter(action="create_session"),
        AuditFilter(object_type=ObjectType.SESSION),
        AuditFilter(object_id=BRAVO.session),
        AuditFilter(user_id=BRAVO.user),
    )
    for wanted in filters:
        yield lambda c, a, b, w=wanted: audit.page(c, a.workspace, w, beginning, 9, **order)  # type: ignore[misc]
    for start in (beginning, None):
        yield lambda c, a, b, s=start: api_keys.page(c, a.workspace, s or b.key, 9, **order)  # type: ignore[misc]
        yield lambda c, a, b, s=start: runs.page(c, a.session, s or b.run, 9, **order)  # type: ignore[misc]
        yield lambda c, a, b, s=start: session_tokens.page(c, a.session, s or b.token, 9, **order)  # type: ignore[misc]
        yield lambda c, a, b, s=start: skills.versions(c, a.skill, s or b.version, 9, **order)  # type: ignore[misc]
        yield lambda c, a, b, s=start: webhooks.page(c, a.workspace, s or b.webhook, 9, **order)  # type: ignore[misc]
        yield lambda c, a, b, s=start: workspaces.members(c, a.workspace, s or b.user, 9, **order)  # type: ignore[misc]
        for state in (None, DeliveryState.PENDING):
            yield lambda c, a, b, s=start, of=state: deliveries.page(  # type: ignore[misc]
                c, a.webhook, of, s or b.delivery, 9, **order
            )
        for archived in (True, False):
            yield lambda c, a, b, s=start, of=archived: sessions.page(  # type: ignore[misc]
                c, a.workspace, s or b.session, 9, archived=of, search=None, **order
            )
            yield lambda c, a, b, s=start, of=archived: skills.page(  # type: ignore[misc]
                c, a.workspace, s or b.skill, 9, archived=of, **order
            )


async def _states(c: Remembering, a: Workspace, window: Window) -> dict[str, int]:
    return dict((await activity.runs(c, a.workspace, window, 9)).by_state)


async def _inputs(c: Remembering, a: Workspace, window: Window) -> int:
    return (await activity.inputs(c, a.workspace, window, 9)).total()


def with_own_ids() -> Iterator[Visit]:
    """What is done to an object that was seen is done to no other."""
    yield from _own_credentials()
    yield from _own_rows()
    yield from _own_runs()
    yield from _own_deliveries()


def _own_credentials() -> Iterator[Visit]:
    a = ALPHA
    key, token = Credential(CredentialKind.API_KEY, a.key_hash), Credential(CredentialKind.SESSION_TOKEN, a.token_hash)
    by_key = Principal(a.workspace, a.key, a.user, a.key, frozenset(), None)
    by_token = Principal(a.workspace, a.key, a.user, a.session, frozenset(), None, a.session, a.token)
    yield lambda c, a, b: access.find_principals(c, [key, token])
    yield lambda c, a, b: access.hold(c, key, alone=False)
    yield lambda c, a, b: access.hold(c, key, alone=True)
    yield lambda c, a, b: access.hold(c, token, alone=False)
    yield lambda c, a, b: access.seize(c, [a.key])
    yield lambda c, a, b: access.caller(c, by_key)
    yield lambda c, a, b: access.caller(c, by_token)
    yield lambda c, a, b: c.execute(last_used._FLUSH, (uuid_array([a.key]), text_array([str(datetime.now(UTC))])))


def _own_rows() -> Iterator[Visit]:
    change = Change("create_session", ObjectType.SESSION, ALPHA.session, {})
    claim = receipts.Claim(ALPHA.key, "create_session", "new", b"")
    session = CreateSessionBody(title="x", skills=[SessionSkill(ALPHA.skill, 1)])
    event = NewEvent(EventType.MESSAGE, {"text": "x"})
    until = datetime.now(UTC) + timedelta(days=1)
    yield lambda c, a, b: api_keys.add(
        c, NewApiKey(new_id(), a.workspace, a.key, "x", "x", b"x" * 32, [Permission.KEY_MANAGE], a.user, None)
    )
    yield lambda c, a, b: audit.add(c, new_id(), a.workspace, change, None, Origin())
    yield lambda c, a, b: log.lock_session(c, a.session)
    yield lambda c, a, b: log.append(c, a.session, a.run, [event])
    yield lambda c, a, b: events.page(c, a.session, 0, 9, 1 << 20)
    yield lambda c, a, b: events.heads(c, [a.session])
    yield lambda c, a, b: receipts.lock(c, claim)
    yield lambda c, a, b: receipts.save(c, claim, b"{}")
    yield lambda c, a, b: session_tokens.add(c, NewSessionToken(new_id(), a.session, a.key, b"x" * 32, "x", until))
    yield lambda c, a, b: sessions.add(c, new_id(), a.workspace, session, a.user)
    yield lambda c, a, b: sessions.workspace_of(c, a.session)
    yield lambda c, a, b: sessions.prevent_deletion(c, a.session)
    yield lambda c, a, b: sessions.agent_setup(c, a.session)
    yield lambda c, a, b: sessions.purge(c, a.deleted_session, 9)
    yield lambda c, a, b: skills.add(c, new_id(), a.workspace, "x", a.user)
    yield lambda c, a, b: skills.of_session(c, a.session)
    yield lambda c, a, b: counted(skills.may_push(c, [Pusher(a.key_hash, a.skill, a.workspace)]), [a.key])
    yield lambda c, a, b: counted(skills.push(c, new_version(a, a.skill)), Pushed(PushVerdict.PUSHED, 2, None))
    yield lambda c, a, b: workspaces.add_user(c, new_id(), "new@example.com")
    yield lambda c, a, b: workspaces.add_user(c, new_id(), a.email)
    yield lambda c, a, b: workspaces.lock_user(c, a.email)
    yield lambda c, a, b: workspaces.name_user(c, a.user, "renamed")
    yield lambda c, a, b: workspaces.workspaces_of_user(c, a.user)
    yield lambda c, a, b: workspaces.add_workspace(c, new_id(), "x", a.user)
    yield lambda c, a, b: workspaces.add_member(c, a.workspace, a.user)


def _own_runs() -> Iterator[Visit]:
    yield lambda c, a, b: lifecycle.find(c, a.run)
    yield lambda c, a, b: lifecycle.active(c, a.run)
    yield lambda c, a, b: lifecycle.active_of(c, a.session)
    yield lambda c, a, b: lifecycle.start_attempt(c, a.run, 1)
    yield lambda c, a, b: lifecycle.unconsumed(c, a.run)
    yield lambda c, a, b: lifecycle.mark_taken(c, a.run, 1, 1)
    yield lambda c, a, b: lifecycle.count_step(c, a.run, 1, 1, 1, 1)
    yield lambda c, a, b: lifecycle.succeed(c, a.run, 1)
    yield lambda c, a, b: lifecycle.fail(c, a.run, 1, "x")
    yield lambda c, a, b: lifecycle.cancel(c, a.run)
    yield lambda c, a, b: lifecycle.give_back(c, a.run, 1)
    yield lambda c, a, b: lifecycle.continue_in(c, a.ended_run, new_id())
    yield lambda c, a, b: lifecycle.journal(c, a.session, 9)
    yield lambda c, a, b: lifecycle.enqueue(c, a.waiting_session, a.parked_run)
    yield lambda c, a, b: lifecycle.lock_places(c, a.workspace)
    yield lambda c, a, b: lifecycle.park(c, a.parked_run)
    yield lambda c, a, b: lifecycle.abort_jobs(c, a.run)


def _own_deliveries() -> Iterator[Visit]:
    a = ALPHA
    claimed = Claimed(a.delivery, a.webhook, "run.succeeded", b"x", 0, 1)
    receiver = Receiver(a.webhook, a.url, a.name, True, [])
    webhook = NewWebhook(new_id(), a.workspace, a.url, a.name, [RunEvent.FAILED], None, b"x", a.user)
    for outcome in (
        Outcome(duration_ms=1, status=200),
        Outcome(duration_ms=1, error="x"),
        Outcome(duration_ms=1, error="x", pause=timedelta(seconds=1)),
    ):
        yield lambda c, a, b, told=outcome: deliveries.store_outcome(c, claimed, told)  # type: ignore[misc]
    yield lambda c, a, b: deliveries.add(c, [NewDelivery(new_id(), a.webhook, "run.failed", a.run, b"x")])
    yield lambda c, a, b: deliveries.give_up(c, [a.delivery], "x")
    yield lambda c, a, b: deliveries.forget(c, [a.delivery])
    yield lambda c, a, b: webhooks.lock_workspace(c, a.workspace)
    yield lambda c, a, b: webhooks.add(c, webhook)
    yield lambda c, a, b: webhooks.receivers(c, [a.webhook])
    yield lambda c, a, b: webhooks.note_failure(c, a.webhook)
    yield lambda c, a, b: webhooks.note_success(c, a.webhook)
    yield lambda c, a, b: webhooks.disable(c, receiver, "x")
    yield lambda c, a, b: webhooks.disable_failing(c, receiver, "x", 5)
    yield lambda c, a, b: webhooks.reseal(c, a.webhook, b"x", None)


def for_all_workspaces() -> Iterator[Visit]:
    """Nothing of the other is due: what is young, in use, under way or not yet wanted stays."""
    yield lambda c, a, b: counted(audit.delete_old(c, 9), 0)
    yield lambda c, a, b: counted(receipts.delete_old(c, 7, 9), 0)
    yield lambda c, a, b: sessions.lock_deleted(c)
    yield lambda c, a, b: counted(deliveries.delete_old(c, HIGHEST_ID, 9), 0)
    yield lambda c, a, b: recovery.prune_workers(c, 60)
    yield lambda c, a, b: recovery.replace_lost_jobs(c)
    yield lambda c, a, b: recovery.delete_spent_jobs(c)
    yield lambda c, a, b: recovery.add_missing_jobs(c)
    yield _free_places
    yield lambda c, a, b: skills.touch_bundles(c, [TouchedBundle(a.bundle, new_id(), 1)])
    yield lambda c, a, b: counted(skills.old_bundles(c, 24, 9), [])
    yield lambda c, a, b: counted(skills.lock_unused_bundle(c, b.bundle, 24), False)
    yield lambda c, a, b: counted(skills.lock_unused_bundle(c, a.bundle, 0), False)
    yield _condemn
    yield lambda c, a, b: skills.condemned_bundles(c, 9)
    yield lambda c, a, b: skills.forget_bundle(c, a.condemned, a.version)
    yield _take_due
    yield lambda c, a, b: events.notify(c, ["x"])
    yield lambda c, a, b: webhooks.sealed(c)
    yield lambda c, a, b: workspaces.all_workspaces(c)
    yield lambda c, a, b: workspaces.lock_first_start(c)
    yield lambda c, a, b: workspaces.any_workspace(c)
    yield lambda c, a, b: is_current(c)


async def _free_places(c: Remembering, a: Workspace, b: Workspace) -> None:
    """A place that one workspace has free is not given to another."""
    await lifecycle.cancel(c, a.run)
    await recovery.fill_places(c, 1)
    row = await (await c.execute("SELECT parked FROM runs WHERE id = %s", (a.parked_run,))).fetchone()
    assert row == (False,)


async def _condemn(c: Remembering, a: Workspace, b: Workspace) -> None:
    (generation,) = await skills.touch_bundles(c, [TouchedBundle(b"x" * 32, new_id(), 1)])
    await skills.condemn_bundle(c, b"x" * 32)
    assert (b"x" * 32, generation) in await skills.condemned_bundles(c, 9)


async def _take_due(c: Remembering, a: Workspace, b: Workspace) -> None:
    assert [one.id for one in await deliveries.claim(c, 9, {}, 9, 60)] == [a.delivery]


class Walked(Struct):
    faults: list[str] = []
    places: set[str] = set()


async def walk(connection: Remembering, visits: Iterator[Visit], *, sees_all: bool = False) -> Walked:
    """Each visit in a transaction that is taken back."""
    walked = Walked()
    names = await tables(connection)
    before = await rows_of(connection, names, BRAVO)
    for visit in visits:
        async with connection.transaction(force_rollback=True):
            connection.forget()
            told = ""
            try:
                await visit(connection, ALPHA, BRAVO)
            except AssertionError as fault:
                told = f"{fault}"
            places = {PLACES[text] for text in connection.statements if text in PLACES}
            if not sees_all and any(BRAVO.marks(answer) for answer in connection.answers):
                told = f"returned {connection.answers}"
            if await rows_of(connection, names, BRAVO) != before:
                told = "changed what is the other's"
        walked.places |= places
        if told:
            walked.faults.append(f"{', '.join(sorted(places))}: {told}")
    return walked


@pytest.fixture
async def connection(database_url: str) -> AsyncIterator[Remembering]:
    async with await AsyncConnection.connect(database_url, autocommit=True, options=AS_OWNER) as owner:
        await fill(owner, ALPHA, "-1 minute")
        await fill(owner, BRAVO, "1 hour")
    url, options = app_url(database_url), connection_options(DatabaseSettings(statement_seconds=80))
    async with await Remembering.connect(url, autocommit=True, options=options) as connection:
        yield connection


def listed(reasons: dict[str, tuple[str, ...]]) -> list[str]:
    return [place for places in reasons.values() for place in places]


async def test_there_is_data_of_every_kind(connection: Remembering) -> None:
    names = await tables(connection)
    assert len(names) >= 18
    for workspace in (ALPHA, BRAVO):
        assert sorted(await rows_of(connection, names, workspace)) == sorted(names)


async def test_no_row_of_the_other_comes_back_or_changes(connection: Remembering) -> None:
    foreign = await walk(connection, with_foreign_ids())
    own = await walk(connection, with_own_ids())
    everybody = await walk(connection, for_all_workspaces(), sees_all=True)
    assert foreign.faults + own.faults + everybody.faults == []
    by_reason = listed(AFTER_A_CHECK) + listed(OF_ALL_WORKSPACES)
    assert len(set(by_reason)) == len(by_reason)
    assert len(PLACES) == len([constant for constant in ALL if not constant.is_the_owners]), "two with the same text"
    assert foreign.places | set(by_reason) == set(PLACES.values()), "a statement has no place in the walk"
    assert foreign.places & set(by_reason) == set(), "a reason is given for what needs none"
    assert set(listed(AFTER_A_CHECK)) <= own.places
    assert set(listed(OF_ALL_WORKSPACES)) <= everybody.places


async def test_statements_that_forgot_their_workspace_are_noticed(
    connection: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test of the test: what returns, what changes, what deletes, what counts."""
    broken: list[tuple[ModuleType, str, str]] = [
        (api_keys, "_GET", "k.workspace_id = %s"),
        (api_keys, "_REVOKE", "workspace_id = %s"),
        (sessions, "_DELETE", "workspace_id = %s"),
        (session_tokens, "_REVOKE", "session_id = %s"),
        (webhooks, "_COUNT", "workspace_id = %s"),
    ]
    for store, name, scope in broken:
        text: str = getattr(store, name)
        assert scope in text
        monkeypatch.setattr(store, name, text.replace(scope, "%s::uuid IS NOT NULL"))
    assert len((await walk(connection, with_foreign_ids())).faults) == len(broken)

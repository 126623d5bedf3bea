"""Two workspaces side by side: no statement that works for one returns or changes a row of the other.

Every statement of every store is called, by the store's own functions and with the privileges of the service. A new
statement that is not called yet fails `test_no_row_of_the_other_workspace_is_returned_or_changed`.
"""

from collections.abc import AsyncIterator, Iterator

import pytest
from msgspec import Struct
from psycopg import AsyncConnection

from quarterdeck.api_keys import store as api_keys
from quarterdeck.core.settings import DatabaseSettings
from quarterdeck.db.database import connection_options
from quarterdeck.sessions import store as sessions
from quarterdeck.webhooks import store as webhooks
from tests.store.foreign_calls import with_foreign_ids
from tests.store.own_calls import for_all_workspaces, with_own_ids
from tests.store.test_sql_prepares import ALL
from tests.store.two_workspaces import ALPHA, BRAVO, RecordingConnection, StoreCall, fill, rows_of, tables
from tests.world import AS_OWNER, app_url

NAMES = {constant.text: constant.name for constant in ALL if not constant.is_for_owner}

# Statements without a workspace, about an object that an earlier statement checked or that was just created.
AFTER_A_CHECK: dict[str, tuple[str, ...]] = {
    "the presented credential, found by its hash": (
        "auth/store _FIND",
        "auth/store _LOCK_WORKSPACE",
        "auth/store _HOLD_API_KEY",
        "auth/store _HOLD_SESSION_TOKEN",
        "auth/store _HOLD_API_KEY_EXCLUSIVELY",
        "auth/store _KEY_CALLER",
        "auth/store _TOKEN_CALLER",
        "auth/store _CALLER_OF",
        "auth/store _HOLD_DEVICE",
        "auth/store _HOLD_DEVICE_EXCLUSIVELY",
        "auth/store _DEVICE_CALLER",
        "auth/last_used _FLUSH[api_keys]",
        "auth/store _HOLD_JOB_KEY",
        "auth/store _JOB_CALLER",
        "auth/last_used _FLUSH[devices]",
        "auth/last_used _FLUSH[trusted_jobs]",
        "people/store _OPEN_INVITATION",
        "people/store _LOCK_INVITATION",
        "people/store _UNANSWERED_CODE",
        "people/store _LOCK_UNANSWERED_CODE",
        "people/store _LOCK_CODE",
    ),
    "a lock: returns and changes nothing": (
        "auth/store _BLOCK",
        "events/log _LOCK",
        "servers/store _LOCK_WORKSPACE",
        "changes/store _LOCK",
        "sessions/store _PREVENT_DELETION",
        "credentials/store _LOCK_WORKSPACE",
        "webhooks/store _LOCK_WORKSPACE",
    ),
    "finds the workspace of the session: the check itself": (
        "auth/store _WORKSPACE_OF",
        "events/store _HEADS",
    ),
    "part of a session that was checked": ("events/store _PAGE", "events/store _BEFORE_LAST", "events/log _APPEND"),
    "adds a row whose ids were created or checked before": (
        "runs/action_store _ADD",
        "api_keys/store _ADD",
        "changes/store _ADD",
        "changes/store _SAVE",
        "credentials/store _ADD",
        "runs/store _ADD",
        "runs/store _FIND_ATTACHMENTS",
        "runs/store _STORE_ATTACHMENTS",
        "sessions/store _ADD_TOKEN",
        "sessions/store _ADD",
        "sessions/store _ADD_SKILL",
        "files/store _ADD",
        "servers/store _ADD",
        "skills/store _SKILLS.add",
        "skills/store _ADD_CONTENTS",
        "agents/store _AGENTS.add",
        "agents/store _ADD_VERSION",
        "agents/store _ADD_SKILLS",
        "webhooks/store _ADD",
        "webhooks/store _ADD_DELIVERY",
    ),
    "the run of a worker's job, or one that was checked": (
        "runs/lifecycle_store _FIND",
        "runs/lifecycle_store _TRACEPARENT",
        "runs/lifecycle_store _BEGIN",
        "runs/lifecycle_store _ACTIVE_OF",
        "runs/lifecycle_store _UNFINISHED_OF",
        "runs/lifecycle_store _START_PENDING",
        "runs/store _PENDING",
        "runs/store _REPEAT",
        "runs/store _SHOW_RETRIED",
        "runs/lifecycle_store _WAITING",
        "runs/lifecycle_store _TAKE",
        "runs/lifecycle_store _CONSUME",
        "runs/lifecycle_store _DISCARD",
        "runs/lifecycle_store _STEP",
        "runs/lifecycle_store _WAIT",
        "runs/lifecycle_store _HOLD",
        "runs/lifecycle_store _SWITCH_MODEL",
        "runs/lifecycle_store _STARTED_CALLS",
        "runs/lifecycle_store _HAS_RESULT",
        "runs/lifecycle_store _MCP_TOOLS",
        "runs/lifecycle_store _SET_MCP_TOOLS",
        "runs/lifecycle_store _PROGRESS",
        "runs/lifecycle_store _REACHED_LIMIT",
        "runs/lifecycle_store _FINISH",
        "runs/lifecycle_store _FAIL",
        "runs/lifecycle_store _LEAVE_OUT_REFUSED",
        "runs/lifecycle_store _CANCEL",
        "runs/lifecycle_store _GIVE_BACK",
        "runs/lifecycle_store _WAIT_FOR_BATCH",
        "runs/store _MODEL_WITHOUT_BATCHES",
        "runs/batch_store _ASK",
        "runs/batch_store _ANSWER",
        "runs/batch_store _ADD_USAGE",
        "runs/batch_store _LEAVE",
        "runs/batch_store _DELETE_SPENT",
        "runs/lifecycle_store _CONTINUE_IN",
        "runs/lifecycle_store _CONVERSATION",
        "runs/lifecycle_store _CANCEL_JOBS",
        "runs/lifecycle_store _ENQUEUE",
        "runs/lifecycle_store _ENQUEUE_AFTER",
        "runs/store _EVENTS",
        "runs/store _WAITS_IN",
        "runs/store _WITHDRAW",
        "runs/store _REPEATED_BY",
        "runs/store _END_OF_RUN",
        "runs/store _FORGET_WORDS",
        "sessions/store _HAS_EVENT",
        "sessions/store _ENTRIES",
        "sessions/store _LAST_ANSWERS",
        "sessions/store _MARK_TITLE",
        "sessions/store _COPY",
        "sessions/store _TOOL_POLICY",
        "sessions/store _SETTINGS",
        "sessions/store _SKILLS",
        "skills/store _OF_SESSION",
    ),
    "the batch that a worker has taken, and its requests": (
        "runs/batch_store _OPEN",
        "runs/batch_store _LOOK_AGAIN",
        "runs/batch_store _CREATED",
        "runs/batch_store _SENT",
        "runs/batch_store _END",
        "runs/batch_store _SET_ANSWER",
        "runs/batch_store _RELEASE",
        "runs/batch_store _FORGET",
    ),
    "an action that was checked, or those of such a run or session": (
        "runs/action_store _RESOLVE",
        "runs/action_store _RAISE_LIMIT",
        "runs/action_store _CONTINUE_RUN",
        "runs/action_store _CANCEL",
        "runs/action_store _OF_CALL",
        "runs/action_store _REMEMBERED",
    ),
    "the delivery that a worker has claimed, and its webhook": (
        "webhooks/store _DELIVERED",
        "webhooks/store _RETRY",
        "webhooks/store _FAILED",
        "webhooks/store _GIVE_UP",
        "webhooks/store _FORGET",
        "webhooks/store _RECEIVERS",
        "webhooks/store _NOTE_SUCCESS",
        "webhooks/store _NOTE_FAILURE",
        "webhooks/store _DISABLE",
        "webhooks/store _DISABLE_FAILING",
        "webhooks/store _SET_SECRETS",
        "credentials/store _SET_SECRET",
    ),
    "the files of a session that was checked, or of a worker's run": (
        "session_files/store _DELETE",
        "session_files/store _WRITE",
        "session_files/store _FOLDERS",
        "session_files/store _NEXT_REVISION",
        "session_files/store _REVISION",
        "session_files/store _MANIFEST",
        "session_files/store _PAGE",
        "session_files/store _GET",
        "session_files/store _LINKS",
        "session_files/store _TITLE",
        "session_files/store _COPY_FILES",
        "session_files/store _COPY_ATTACHMENTS",
        "session_files/store _KEEP_CONTENTS",
    ),
    "copies on a worker's disk, to delete what was deleted": (
        "session_files/store _REVISIONS",
        "skills/store _STORED_ARCHIVES",
    ),
    "sessions that were found by their workspace, to remove what has expired": (
        "sessions/expiry_store _EXPIRE",
        "sessions/expiry_store _LOCK",
        "session_files/store _DELETE_ALL",
    ),
    "the deleted session whose log is being removed": (
        "session_files/store _PURGE_FILES",
        "session_files/store _PURGE_ATTACHMENTS",
        "sessions/store _PURGE",
        "runs/action_store _PURGE",
        "sessions/store _PURGE_EVENTS",
        "sessions/store _PURGE_RECEIPTS",
        "sessions/store _FORGET_DELETED",
    ),
    "people and what they sign in with belong to no workspace": (
        "people/store _ADD_ACCOUNT",
        "people/store _ACCOUNT",
        "people/store _ACCOUNT_BY_EMAIL",
        "people/store _LOCK_ACCOUNT",
        "people/store _LOCK_ACCOUNT_BY_EMAIL",
        "people/store _NAME_ACCOUNT",
        "people/store _SET_EMAIL",
        "people/store _SET_PASSWORD",
        "people/store _END_LINKS",
        "people/store _MEMBERSHIPS",
        "people/store _WORKSPACES_OF_USER",
        "people/store _PERMISSIONS_OF",
        "people/store _VALID_DEVICES",
        "people/store _USER_OF_DEVICE",
        "people/store _ADD_DEVICE",
        "people/store _ADD_CODE",
        "people/store _ANSWER_CODE",
        "people/store _COLLECT_CODE",
        "people/store _COUNT_TRY",
        "people/store _FORGET_TRIES",
        "people/provider_store _ADD_ATTEMPT",
        "people/provider_store _TAKE_ATTEMPT",
        "people/provider_store _LOCK_IDENTITY",
        "people/provider_store _ADD_IDENTITY",
        "people/provider_store _HAS_IDENTITY",
        "people/provider_store _ADD_USER",
        "people/provider_store _SET_MEMBERS_UNTIL",
        "people/provider_store _LIMIT_MEMBERS",
        "people/provider_store _MEMBERSHIPS",
        "people/provider_store _TAKE_SESSIONS",
        "people/provider_store _RENEW",
        "people/provider_store _DROP",
        "people/provider_store _DELETE_SESSION",
        "people/provider_store _ADD_SESSION",
        "people/provider_store _HAS_SESSION",
        "workspaces/store _ADD_WORKSPACE",
    ),
    "an invitation that was found by its secret, or an account that is entering": (
        "people/store _ACCEPT",
        "people/store _ADD_INVITATION",
        "people/store _ADD_MEMBER",
    ),
    "a trusted job that was named with a token for it": (
        "trusted_jobs/store _IN_FORCE",
        "trusted_jobs/store _ADD_KEY",
        "trusted_jobs/store _DELETE_EXPIRED_KEYS",
    ),
    "the session tokens of a member who has left": ("sessions/store _REVOKE_TOKENS",),
}
# Statements about all workspaces. Their calls show which rows they must not change.
OF_ALL_WORKSPACES: dict[str, tuple[str, ...]] = {
    "removes expired rows": (
        "changes/store _EXPIRE",
        "changes/store _DELETE_OLD",
        "people/store _DELETE_CODES",
        "people/store _DELETE_TRIES",
        "people/provider_store _DELETE_ATTEMPTS",
        "people/provider_store _DELETE_ENDED",
        "sessions/store _DELETED",
        "webhooks/store _DELETE_OLD",
        "files/store _DELETE_OLD",
        "sessions/expiry_store _WITH_FILES",
        "sessions/expiry_store _IDLE",
        "workspaces/store _RETENTION_OF_ALL",
        "workspaces/store _SERVER_AUDIT_DAYS",
    ),
    "closes actions that are due": ("runs/action_store _LOCK_DUE", "runs/action_store _EXPIRE"),
    "closes actions whose limit no longer applies": ("runs/action_store _LOCK_LIFTED", "runs/action_store _RELEASE"),
    "repairs the jobs of all runs": (
        "runs/store _PRUNE",
        "runs/store _REPLACE_LOST",
        "runs/store _DELETE_SPENT",
        "runs/store _ADD_MISSING",
        "runs/store _START_PARKED",
    ),
    "gives workspaces their turns at the slots of workers": (
        "runs/store _ASK_TO_LEAVE",
        "runs/store _LEAVING",
        "worker/queue_store _SYNCHRONIZE",
        "worker/queue_store _UNREGISTER",
    ),
    "models are shared, with their pauses and limits": (
        "runs/model_pause_store _READ",
        "runs/model_pause_store _RELEASE",
        "runs/model_pause_store _PAUSE",
        "runs/model_pause_store _ANNOUNCE",
        "runs/model_pause_store _TRY",
        "runs/model_pause_store _RESUME",
        "runs/model_pause_store _BEGIN_REQUEST",
        "runs/model_pause_store _END_REQUEST",
    ),
    "blobs are shared by content": (
        "blobs/store _TOUCH",
        "blobs/store _FIND",
        "blobs/store _OLD",
        "blobs/store _LOCK_OLD",
        "blobs/store _IN_USE",
        "blobs/store _CONDEMN",
        "blobs/store _CONDEMNED",
        "blobs/store _FORGET",
        "blobs/store _BYTES",
        "blobs/store _BETWEEN",
        "blobs/store _TOUCH_STORED",
    ),
    "a worker takes batches that are due": ("runs/batch_store _TAKE",),
    "a worker claims due deliveries": ("webhooks/store _CLAIM",),
    "a process asks providers about people": (
        "people/provider_store _DUE_PROVIDERS",
        "people/provider_store _LOCK_OVERDUE",
    ),
    "notifies every process about sessions": ("events/store _NOTIFY", "events/store _NOTIFY_READERS"),
    "for the operator": (
        "credentials/store _SECRETS",
        "webhooks/store _SECRETS",
        "workspaces/store _ALL",
        "workspaces/store _LOCK_FIRST_START",
        "workspaces/store _ANY_WORKSPACE",
    ),
    "counts for the operator's metrics": (
        "server/metrics_store _RUNS",
        "server/metrics_store _QUEUE",
        "server/metrics_store _QUEUE_AGE",
        "server/metrics_store _ACTIONS",
        "server/metrics_store _WORKERS",
        "server/metrics_store _CONNECTIONS",
    ),
    "draws ids": ("sessions/store _NEW_IDS",),
    "a setting of the transaction": ("sessions/store _ADD_NO_WORDS",),
    "about the schema": ("db/migrate _APPLIED", "db/migrate _KNOWN"),
}


class Walked(Struct):
    faults: list[str] = []
    names: set[str] = set()


async def walk(connection: RecordingConnection, calls: Iterator[StoreCall], *, sees_all: bool = False) -> Walked:
    """Makes each call in a transaction that is rolled back."""
    walked = Walked()
    names = await tables(connection)
    before = await rows_of(connection, names, BRAVO)
    for call in calls:
        async with connection.transaction(force_rollback=True):
            connection.forget()
            told = ""
            try:
                await call(connection, ALPHA, BRAVO)
            except AssertionError as fault:
                told = repr(fault)
            called = {NAMES[text] for text in connection.statements if text in NAMES}
            if not sees_all and any(BRAVO.marks(row) for row in connection.rows):
                told = f"returned {connection.rows}"
            if await rows_of(connection, names, BRAVO) != before:
                told = "changed rows of the other workspace"
        walked.names |= called
        if told:
            walked.faults.append(f"{', '.join(sorted(called))}: {told}")
    return walked


@pytest.fixture
async def connection(database_url: str) -> AsyncIterator[RecordingConnection]:
    async with await AsyncConnection.connect(database_url, autocommit=True, options=AS_OWNER) as owner:
        await fill(owner, ALPHA, "-1 minute")
        await fill(owner, BRAVO, "1 hour")
    url, options = app_url(database_url), connection_options(DatabaseSettings(statement_seconds=80))
    async with await RecordingConnection.connect(url, autocommit=True, options=options) as connection:
        yield connection


def listed(reasons: dict[str, tuple[str, ...]]) -> list[str]:
    return [name for names in reasons.values() for name in names]


async def test_there_is_data_of_every_kind(connection: RecordingConnection) -> None:
    names = await tables(connection)
    assert len(names) >= 18
    for workspace in (ALPHA, BRAVO):
        assert sorted(await rows_of(connection, names, workspace)) == sorted(names)


@pytest.mark.long
async def test_no_row_of_the_other_workspace_is_returned_or_changed(connection: RecordingConnection) -> None:
    foreign = await walk(connection, with_foreign_ids())
    own = await walk(connection, with_own_ids())
    everybody = await walk(connection, for_all_workspaces(), sees_all=True)
    assert foreign.faults + own.faults + everybody.faults == []
    by_reason = listed(AFTER_A_CHECK) + listed(OF_ALL_WORKSPACES)
    assert len(set(by_reason)) == len(by_reason)
    assert len(NAMES) == len([constant for constant in ALL if not constant.is_for_owner]), "two with the same text"
    assert foreign.names | set(by_reason) == set(NAMES.values()), "a statement is never called"
    assert foreign.names & set(by_reason) == set(), "a reason that is not needed"
    assert set(listed(AFTER_A_CHECK)) <= own.names
    assert set(listed(OF_ALL_WORKSPACES)) <= everybody.names


@pytest.mark.long
async def test_statements_without_their_workspace_are_found(
    connection: RecordingConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test of the test."""
    broken: list[tuple[object, str, str]] = [
        (api_keys._KEYS, "get_query", "r.workspace_id = %s"),
        (api_keys, "_REVOKE", "workspace_id = %s"),
        (sessions, "_DELETE", "workspace_id = %s"),
        (sessions, "_REVOKE_TOKEN", "session_id = %s"),
        (webhooks, "_COUNT", "workspace_id = %s"),
    ]
    for owner, name, scope in broken:
        text: str = getattr(owner, name)
        assert scope in text
        monkeypatch.setattr(owner, name, text.replace(scope, "%s::uuid IS NOT NULL"))
    assert len((await walk(connection, with_foreign_ids())).faults) == len(broken)

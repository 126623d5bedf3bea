"""Calls of store functions that name no workspace: about objects of one workspace, and about all workspaces. They must
not change or return rows of the other workspace."""

from collections.abc import Awaitable, Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec

from quarterdeck.agents import store as agents
from quarterdeck.agents.configuration import AgentConfiguration, SessionSkill
from quarterdeck.api_keys import store as api_keys
from quarterdeck.api_keys.model import CreateApiKeyBody
from quarterdeck.auth import last_used
from quarterdeck.auth import store as access
from quarterdeck.blobs import store as blobs
from quarterdeck.blobs.model import Blob, StoredBlob
from quarterdeck.changes import store as changes
from quarterdeck.changes.model import Actor, Change, ObjectType
from quarterdeck.connections.credentials import store as credentials
from quarterdeck.connections.credentials.model import CredentialType, Parameters, StoredCredential
from quarterdeck.connections.mcp.model import PinnedTools
from quarterdeck.connections.servers import store as mcp_servers
from quarterdeck.connections.servers.model import CreateMcpServerBody
from quarterdeck.core.actors import Caller, Credential, CredentialKind, Origin, Permission, Principal, Role
from quarterdeck.core.ids import LOWEST_ID, new_id
from quarterdeck.core.retention import RetentionDays
from quarterdeck.core.secrets import Secret
from quarterdeck.core.settings import RunSettings
from quarterdeck.db.migrate import is_current
from quarterdeck.db.walks import BatchResult
from quarterdeck.events import log
from quarterdeck.events import store as events
from quarterdeck.events.model import EventType, NewEvent
from quarterdeck.files import store as files
from quarterdeck.files.model import Upload
from quarterdeck.models.model import AssistantTurn, EncodedRequest, Step
from quarterdeck.people import provider_store as providers
from quarterdeck.people import store as people
from quarterdeck.people.model import DeviceKind
from quarterdeck.people.provider_model import SignInAttempt
from quarterdeck.people.provider_store import Identity
from quarterdeck.runs import action_store as actions
from quarterdeck.runs import batch_store as batches
from quarterdeck.runs import lifecycle_store as lifecycle
from quarterdeck.runs import model_pause_store as model_pauses
from quarterdeck.runs import store as creation
from quarterdeck.runs.action_model import ActionData, ActionKind, NewAction
from quarterdeck.runs.batch_store import StoredAnswer, TakenBatch
from quarterdeck.runs.model import BatchModels, Delivery, Input, InputEvent, RunState
from quarterdeck.runs.store import StoredInputEvent
from quarterdeck.server.metrics_store import Counts, read_counts, read_figures
from quarterdeck.session_files import store as session_files
from quarterdeck.sessions import expiry_store as expiry
from quarterdeck.sessions import store as sessions
from quarterdeck.sessions.model import CreateSessionTokenBody, NewSession
from quarterdeck.skills import store as skills
from quarterdeck.trusted_jobs import store as trusted_jobs
from quarterdeck.webhooks import store as webhooks
from quarterdeck.webhooks.model import (
    Claimed,
    DeliveryOutcome,
    NewDelivery,
    NewWebhook,
    Receiver,
    WebhookEvent,
)
from quarterdeck.worker import queue_store
from quarterdeck.workspaces import store as workspaces
from tests.session_files import stored_file
from tests.store.two_workspaces import (
    ALPHA,
    BUNDLE,
    RecordingConnection,
    StoreCall,
    Workspace,
    attaching,
    read_only_twin,
    returns,
)
from tests.workers import SETUP


def with_own_ids() -> Iterator[StoreCall]:
    """What is done to an object that was seen is done to no other."""
    yield from _own_credentials()
    yield from _own_people()
    yield from _own_provider_sessions()
    yield from _own_rows()
    yield from _own_runs()
    yield from _own_actions()
    yield from _own_batches()
    yield from _own_forks()
    yield from _own_files()
    yield from _own_deliveries()
    yield from _own_mcp_servers()


def _own_credentials() -> Iterator[StoreCall]:
    a = ALPHA
    key, token = Credential(CredentialKind.API_KEY, a.key_hash), Credential(CredentialKind.SESSION_TOKEN, a.token_hash)
    device = Credential(CredentialKind.DEVICE, a.device_hash, a.workspace)
    by_key = Principal(a.workspace, a.key, a.user, Role.OWNER, a.key, frozenset(), None)
    by_token = Principal(a.workspace, a.key, a.user, Role.OWNER, a.session, frozenset(), None, a.session, a.token)
    job_key = Credential(CredentialKind.JOB_KEY, a.job_key_hash)
    by_device = Principal(a.workspace, None, a.user, Role.OWNER, a.device, frozenset(), None, device_id=a.device)
    yield lambda c, a, b: access.find_principals(c, [key, token, device, job_key])
    yield lambda c, a, b: access.lock_workspace(c, device)
    yield lambda c, a, b: access.hold(c, key, exclusive=False)
    yield lambda c, a, b: access.hold(c, key, exclusive=True)
    yield lambda c, a, b: access.hold(c, token, exclusive=False)
    yield lambda c, a, b: access.hold(c, device, exclusive=False)
    yield lambda c, a, b: access.hold(c, device, exclusive=True)
    yield lambda c, a, b: access.hold(c, job_key, exclusive=False)
    yield lambda c, a, b: access.block(c, [a.key])
    yield lambda c, a, b: access.caller(c, by_key)
    yield lambda c, a, b: access.caller(c, by_token)
    yield lambda c, a, b: access.caller(c, by_device)
    yield lambda c, a, b: _job_caller(c, a)
    yield lambda c, a, b: access.caller_of(c, by_key)
    yield lambda c, a, b: access.caller_of(c, by_token)
    for flush in last_used._FLUSH.values():
        yield lambda c, a, b, flush=flush: c.execute(flush, ([a.key, a.device, a.trusted_job], [datetime.now(UTC)]))  # type: ignore[misc]


async def _job_caller(c: RecordingConnection, a: Workspace) -> None:
    job_key = Credential(CredentialKind.JOB_KEY, a.job_key_hash)
    found = await access.caller(c, (await access.find_principals(c, [job_key]))[job_key])
    assert found is not None
    assert found.id == a.trusted_job


def _own_people() -> Iterator[StoreCall]:
    secret, email = Secret("x", b"x" * 32, "x"), "new@example.com"
    yield lambda c, a, b: people.add_account(c, email)
    yield lambda c, a, b: people.add_account(c, a.email)
    yield lambda c, a, b: people.account(c, a.user)
    yield lambda c, a, b: people.account_by_email(c, a.email)
    yield lambda c, a, b: people.lock_account(c, a.user)
    yield lambda c, a, b: people.lock_account_by_email(c, a.email)
    yield lambda c, a, b: people.name_account(c, a.user, "renamed")
    yield lambda c, a, b: people.set_email(c, a.user, email)
    yield lambda c, a, b: people.set_password(c, a.user, "x")
    yield lambda c, a, b: people.workspaces_of_user(c, a.user)
    yield lambda c, a, b: people.memberships(c, a.user)
    yield lambda c, a, b: people.permissions_of(c, Role.ADMIN)
    yield lambda c, a, b: people.add_member(c, a.workspace, a.user, Role.ADMIN)
    yield lambda c, a, b: people.add_invitation(c, a.workspace, email, Role.ADMIN, secret, a.user, 1.0)
    yield lambda c, a, b: people.add_account_link(c, a.user, email, secret, 1.0)
    yield lambda c, a, b: people.open_invitation(c, a.invitation_hash)
    yield lambda c, a, b: people.open_invitation(c, a.invitation_hash, lock=True)
    yield lambda c, a, b: people.accept_invitation(c, a.invitation, a.user)
    yield lambda c, a, b: people.add_device(c, a.user, DeviceKind.BROWSER, "x", secret, None, 1.0)
    yield lambda c, a, b: people.valid_devices(c, a.user)
    yield lambda c, a, b: people.user_of_device(c, a.device)
    yield lambda c, a, b: people.add_device_code(c, "BCDF-GHJK", secret, "x", None, 1.0)
    yield lambda c, a, b: people.unanswered_code(c, a.user_code)
    yield lambda c, a, b: people.unanswered_code(c, a.user_code, lock=True)
    yield lambda c, a, b: people.lock_code(c, a.code_hash)
    yield lambda c, a, b: people.answer_code(c, a.device_code, a.device, is_approved=True)
    yield lambda c, a, b: people.collect_code(c, a.device_code)
    yield lambda c, a, b: people.count_try(c, "x", 1.0)
    yield lambda c, a, b: people.forget_tries(c, "x")


def _own_provider_sessions() -> Iterator[StoreCall]:
    a = ALPHA
    identity, other = Identity(a.url, a.name, a.user), Identity(a.url, "another", a.user)
    attempt = SignInAttempt(a.name, a.url, "x", "x", "/", "x", a.device)

    async def renew_and_drop(c: RecordingConnection) -> None:
        (session,) = await providers.take_sessions(c, a.name, 9, 60.0)
        assert session.identity == identity
        await providers.renew_session(c, session, b"x", 1.0, 1.0, is_confirmed=True, is_unsure=False)
        (session,) = await providers.take_sessions(c, a.name, 9, 60.0) or [session]
        await providers.drop_session(c, session)

    async def replace_session(c: RecordingConnection) -> None:
        assert await providers.delete_session(c, a.device) is not None
        await providers.add_session(c, a.device, a.name, identity, a.url, b"x", 1.0, has_refresh_token=True)

    async def replace_identity(c: RecordingConnection) -> None:
        await providers.add_user(c, UUID(int=1), None, None)
        await providers.add_identity(c, Identity(a.url, "another", UUID(int=1)))

    yield lambda c, a, b: providers.add_attempt(c, b"x" * 32, b"x" * 32, attempt)
    yield lambda c, a, b: providers.take_attempt(c, a.code_hash, a.device_hash, a.name)
    yield lambda c, a, b: providers.lock_identity(c, a.url, a.name)
    yield lambda c, a, b: replace_identity(c)
    yield lambda c, a, b: returns(providers.has_identity(c, a.user, a.url), True)
    yield lambda c, a, b: providers.set_members_until(c, identity, 1.0)
    yield lambda c, a, b: providers.limit_members(c, other, 1.0)
    yield lambda c, a, b: providers.memberships(c, a.user)
    yield lambda c, a, b: renew_and_drop(c)
    yield lambda c, a, b: replace_session(c)
    yield lambda c, a, b: returns(providers.has_session(c, a.user, a.url), True)
    yield lambda c, a, b: returns(providers.has_session(c, a.user, b.url), False)


def _own_rows() -> Iterator[StoreCall]:
    change = Change("create_session", ObjectType.SESSION, ALPHA.session, {})
    claim = changes.Claim(ALPHA.key, "create_session", "new", b"")
    configuration = AgentConfiguration(skills=[SessionSkill(ALPHA.skill, 1)], sandbox=None)
    session = NewSession(title="x", configuration=configuration)
    event = NewEvent(EventType.MESSAGE, {"text": "x"})
    until = datetime.now(UTC) + timedelta(days=1)
    secret, key = Secret("x", b"x" * 32, "x"), CreateApiKeyBody("x", [Permission.KEY_MANAGE])
    by_key = Principal(ALPHA.workspace, ALPHA.key, ALPHA.user, Role.OWNER, ALPHA.key, frozenset(), None)
    yield lambda c, a, b: api_keys.add(c, a.workspace, a.user, secret, key, a.key)
    yield lambda c, a, b: changes.add_audit_event(c, new_id(), a.workspace, change, Actor(), Origin())
    yield lambda c, a, b: log.lock_session(c, a.session)
    yield lambda c, a, b: log.append(c, a.session, a.run, event)
    yield lambda c, a, b: events.page(c, a.session, 0, 9, 1 << 20)
    yield lambda c, a, b: events.id_before_last(c, a.session, 1)
    yield lambda c, a, b: events.heads(c, [a.session])
    yield lambda c, a, b: changes.lock_receipt(c, claim)
    yield lambda c, a, b: changes.save_receipt(c, claim, b"{}")
    yield lambda c, a, b: sessions.add_token(c, a.session, by_key, secret, CreateSessionTokenBody(), until)
    yield lambda c, a, b: sessions.add(c, new_id(), a.workspace, session, a.user)
    yield lambda c, a, b: sessions.revoke_tokens(c, [a.token])
    yield lambda c, a, b: access.workspace_of(c, a.session)
    yield lambda c, a, b: sessions.prevent_deletion(c, a.session)
    yield lambda c, a, b: sessions.tool_policy(c, a.session)
    yield lambda c, a, b: sessions.settings(c, a.session)
    yield lambda c, a, b: sessions.follow_skills(c, a.workspace, a.session, [])
    yield lambda c, a, b: agents.add(c, new_id(), a.workspace, "x", a.user)
    yield lambda c, a, b: agents.add_version(c, new_id(), a.workspace, a.agent, configuration, a.user)
    yield lambda c, a, b: sessions.purge(c, a.deleted_session, 9)
    yield lambda c, a, b: sessions.purge_search(c, a.session, 9)
    yield lambda c, a, b: files.add(c, new_id(), a.workspace, Upload("x", "text/plain", 1, a.blob.hex()), a.user)
    yield lambda c, a, b: trusted_jobs.in_force(c, a.trusted_job)
    yield lambda c, a, b: trusted_jobs.add_key(c, a.trusted_job, secret, 600)
    yield lambda c, a, b: skills.add(c, new_id(), a.workspace, "x", a.user)
    yield lambda c, a, b: skills.of_session(c, a.session)
    yield lambda c, a, b: skills.stored_archives(c, [a.blob.hex()])
    yield lambda c, a, b: skills.add_version(c, new_id(), a.workspace, a.skill, BUNDLE, a.user)
    yield lambda c, a, b: workspaces.add_workspace(c, new_id(), "x", a.user)


def _key(a: Workspace) -> lifecycle.RunKey:
    return lifecycle.RunKey(a.run, a.session, a.workspace, 1)


def _own_runs() -> Iterator[StoreCall]:
    yield lambda c, a, b: lifecycle.find(c, a.run)
    yield lambda c, a, b: lifecycle.traceparent(c, a.run)
    yield lambda c, a, b: lifecycle.active_of(c, a.session)
    yield lambda c, a, b: lifecycle.unfinished_of(c, a.session)
    yield lambda c, a, b: lifecycle.start_pending(c, a.session)
    actor = Caller("api_key", ALPHA.key, "x", ALPHA.user, None)
    event = InputEvent("x", "input", Delivery.QUEUE)
    pending = creation.NewRun(new_id(), ALPHA.archived_session, ALPHA.workspace, RunState.PENDING, ALPHA.key)
    yield lambda c, a, b: creation.add(c, pending, new_id(), event, actor)
    attachment = {"sha256": ALPHA.blob.hex(), "path": "attachments/x", "bytes": 1}
    attached = creation.NewRun(new_id(), ALPHA.archived_session, ALPHA.workspace, RunState.PENDING, ALPHA.key)
    yield lambda c, a, b: creation.add(c, attached, new_id(), event, actor, [attachment])
    yield lambda c, a, b: creation.find_attachments(c, a.session, a.workspace, attaching(a.file))
    yield lambda c, a, b: creation.pending(c, a.session)
    yield lambda c, a, b: creation.repeat_inputs(c, a.ended_run, new_id(), [new_id()], 9, actor, a.key)
    yield lambda c, a, b: lifecycle.begin(c, a.run, RunSettings(), {}, SETUP, 1, True)
    yield lambda c, a, b: lifecycle.begin(c, a.run, RunSettings(active_per_workspace=1), {}, None, 1, True)
    yield lambda c, a, b: lifecycle.waiting(c, a.run, 9)
    yield lambda c, a, b: lifecycle.mark_taken(c, _key(a), [Input(1, str(a.input), "x")], more=True)
    yield lambda c, a, b: lifecycle.log_consumed(c, a.session, a.run, 1, [Input(1, str(a.input), "x")])
    yield lambda c, a, b: lifecycle.discard_waiting(c, a.session, a.run, (1_000_000, 0), "x")
    yield lambda c, a, b: lifecycle.reached_limit(c, a.run)
    yield lambda c, a, b: lifecycle.count_progress(c, _key(a))
    step = Step(AssistantTurn("", []), input_tokens=1, output_tokens=1)
    yield lambda c, a, b: lifecycle.record_step(c, _key(a), "x", step, [NewEvent(EventType.NOTE, {})], True)
    yield lambda c, a, b: lifecycle.wait(c, _key(a))
    yield lambda c, a, b: lifecycle.hold(c, _key(a))
    yield lambda c, a, b: lifecycle.switch_model(c, _key(a), "y")
    yield lambda c, a, b: lifecycle.started_calls(c, a.session, a.run)
    yield lambda c, a, b: lifecycle.has_result(c, a.session, a.run, "x")
    yield lambda c, a, b: lifecycle.mcp_tools(c, a.run)
    yield lambda c, a, b: lifecycle.set_mcp_tools(c, _key(a), PinnedTools())
    yield lambda c, a, b: lifecycle.finish(c, _key(a))
    yield lambda c, a, b: lifecycle.fail(c, _key(a), "running", "x")
    yield lambda c, a, b: lifecycle.leave_out_refused(c, a.session, a.ended_run)
    yield lambda c, a, b: creation.show_retried(c, a.session, a.ended_run)
    yield lambda c, a, b: lifecycle.cancel(c, a.run)
    yield lambda c, a, b: lifecycle.give_back(c, _key(a), None)
    yield lambda c, a, b: lifecycle.continue_in(c, a.ended_run, new_id())
    yield lambda c, a, b: lifecycle.conversation(c, a.session, 9)
    yield lambda c, a, b: lifecycle.enqueue(c, a.waiting_session, a.parked_run)
    yield lambda c, a, b: lifecycle.enqueue_after(c, a.waiting_session, a.parked_run, 10)
    yield lambda c, a, b: lifecycle.cancel_jobs(c, a.run)
    yield lambda c, a, b: creation.events_of(c, a.session, a.input)
    yield lambda c, a, b: creation.repeated_by(c, a.session, 1)
    yield lambda c, a, b: creation.waits_in(c, a.session, StoredInputEvent("input.accepted", 1, a.run, 1))
    yield lambda c, a, b: creation.withdraw(c, a.run, 1)
    yield lambda c, a, b: creation.forget_words(c, a.session, StoredInputEvent("input.accepted", 1, a.run, 1))
    yield lambda c, a, b: creation.end_of_run(c, a.session, StoredInputEvent("input.consumed", 1, a.run, 1))


def _taken(a: Workspace) -> TakenBatch:
    return TakenBatch(a.batch, a.name, None, False, datetime.now(UTC), 0)


def _own_batches() -> Iterator[StoreCall]:
    step = Step(AssistantTurn("", []), input_tokens=1, output_tokens=1)
    yield lambda c, a, b: lifecycle.wait_for_batch(c, _key(a))
    yield lambda c, a, b: creation.model_without_batches(c, a.session, BatchModels("demo", []))
    yield lambda c, a, b: batches.ask(c, a.run, 1, "x", EncodedRequest("x", "x", "{}"))
    yield lambda c, a, b: batches.answer(c, a.run, 1)
    yield lambda c, a, b: batches.open_requests(c, a.batch)
    yield lambda c, a, b: batches.look_again(c, _taken(a), 1, False)
    yield _create_batch
    yield lambda c, a, b: batches.end(c, _taken(a))
    yield lambda c, a, b: batches.set_answer(c, a.batch, a.run, StoredAnswer("{}", None))
    yield lambda c, a, b: batches.release(c, _taken(a), a.run)
    yield lambda c, a, b: batches.forget(c, a.batch, a.run)
    yield lambda c, a, b: batches.add_usage(c, a.run, "x", step)
    yield lambda c, a, b: batches.leave(c, a.run)


async def _create_batch(c: RecordingConnection, a: Workspace, _: Workspace) -> None:
    [taken] = [batch for batch in await batches.take(c, 0, 9, 9, 60, 9) if batch.id == a.batch]
    assert await batches.created(c, taken, {"id": "x"}, 1)


def _own_actions() -> Iterator[StoreCall]:
    new = NewAction(kind=ActionKind.APPROVAL, reason="x", step=1, call_id="x", tool="x", arguments={})
    caller = Caller("api_key", ALPHA.key, "x", ALPHA.user, None)
    yield lambda c, a, b: actions.add(c, new_id(), a.workspace, a.session, a.run, new, 60)
    yield lambda c, a, b: actions.resolve(c, a.action, caller, {"decision": "stop"})
    yield lambda c, a, b: actions.raise_limit(c, a.action, None, 1_000)
    yield lambda c, a, b: actions.continue_run(c, a.run)
    yield lambda c, a, b: actions.cancel(c, a.run)
    yield lambda c, a, b: actions.of_call(c, a.run, 1, "c")
    yield lambda c, a, b: actions.remembered_tools(c, a.session)
    yield lambda c, a, b: actions.purge(c, a.session, 9)
    yield lambda c, a, b: expiry.lock(c, a.session)
    yield lambda c, a, b: expiry.expire(c, [a.session], 0, 0, 9, 1.0)


def _own_forks() -> Iterator[StoreCall]:
    yield lambda c, a, b: sessions.has_event(c, a.session, 1)
    yield lambda c, a, b: sessions.entries(c, a.session, 1_000_000, 9)
    yield lambda c, a, b: sessions.last_answers(c, a.session, [a.run])
    yield lambda c, a, b: sessions.mark_title(c, a.session, a.waiting_session)
    yield _copy_event


def _own_files() -> Iterator[StoreCall]:
    file = stored_file("x")
    mine = msgspec.structs.replace(file, sha256=ALPHA.blob.hex())
    yield lambda c, a, b: session_files.delete(c, a.session, [b.name, a.name])
    yield lambda c, a, b: session_files.write(c, a.session, [mine])
    yield lambda c, a, b: returns(session_files.folders(c, a.session, [a.name, b.name]), [])
    yield lambda c, a, b: session_files.next_revision(c, a.session)
    yield lambda c, a, b: session_files.revision(c, a.session)
    yield lambda c, a, b: session_files.revisions(c, [a.session])
    yield lambda c, a, b: session_files.manifest(c, a.session)
    yield lambda c, a, b: session_files.page(c, a.session, "", "", 9)
    yield lambda c, a, b: session_files.get(c, a.session, a.name)
    yield lambda c, a, b: session_files.links(c, a.session)
    yield lambda c, a, b: session_files.title(c, a.session)
    yield lambda c, a, b: session_files.copy_rows(c, a.session, a.waiting_session)
    yield lambda c, a, b: session_files.keep_contents(c, a.waiting_session, [a.blob.hex()])
    yield lambda c, a, b: session_files.delete_all(c, a.session)
    yield lambda c, a, b: session_files.purge(c, a.session, 9)


def _own_mcp_servers() -> Iterator[StoreCall]:
    body = CreateMcpServerBody("x", command="x")
    yield lambda c, a, b: mcp_servers.lock_workspace(c, a.workspace)
    yield lambda c, a, b: mcp_servers.add(c, a.workspace, new_id(), body, a.user)


def _own_deliveries() -> Iterator[StoreCall]:
    a = ALPHA
    claimed = Claimed(a.delivery, a.webhook, "run.succeeded", b"x", 0, 1)
    receiver = Receiver(a.webhook, a.workspace, a.url, a.name, True, [])
    webhook = NewWebhook(new_id(), a.workspace, a.url, a.name, [WebhookEvent.RUN_FAILED], None, b"x", a.user)
    for outcome in (
        DeliveryOutcome(duration_ms=1, status=200),
        DeliveryOutcome(duration_ms=1, error="x"),
        DeliveryOutcome(duration_ms=1, error="x", pause=timedelta(seconds=1)),
    ):
        yield lambda c, a, b, told=outcome: webhooks.store_outcome(c, claimed, told)  # type: ignore[misc]
    yield lambda c, a, b: webhooks.add_deliveries(c, [NewDelivery(new_id(), a.webhook, "run.failed", a.run, b"x")])
    yield lambda c, a, b: webhooks.give_up(c, [a.delivery], "x")
    yield lambda c, a, b: webhooks.forget(c, [a.delivery])
    credential = StoredCredential(
        id=new_id(),
        workspace_id=a.workspace,
        kind=CredentialType.BEARER,
        parameters=Parameters(),
        secret=b"x",
        revision=1,
    )
    yield lambda c, a, b: credentials.lock_workspace(c, a.workspace)
    yield lambda c, a, b: credentials.add(c, a.workspace, a.user, "x", credential)
    yield lambda c, a, b: credentials.set_secret(c, a.credential, b"x")
    yield lambda c, a, b: webhooks.lock_workspace(c, a.workspace)
    yield lambda c, a, b: webhooks.add(c, webhook)
    yield lambda c, a, b: webhooks.receivers(c, [a.webhook])
    yield lambda c, a, b: webhooks.note_failure(c, a.webhook)
    yield lambda c, a, b: webhooks.note_success(c, a.webhook)
    yield lambda c, a, b: webhooks.disable(c, receiver, "x")
    yield lambda c, a, b: webhooks.disable_failing(c, receiver, "x", 5)
    yield lambda c, a, b: webhooks.set_secrets(c, a.webhook, b"x", None)


def _models() -> Iterator[StoreCall]:
    """Workspaces share the models of the server, and their pauses and limits."""

    def limits(*names: str) -> dict[str, dict[str, int]]:
        return {name: {"concurrent": 9, "tokens_a_minute": 9} for name in names}

    yield lambda c, a, b: model_pauses.release(c, 9, 9999, limits(a.name, b.name))
    yield lambda c, a, b: model_pauses.read(c, [a.name])
    yield lambda c, a, b: model_pauses.pause(c, a.name, a.run, "x", True, 1, 1, 9)
    yield lambda c, a, b: model_pauses.announce(c, a.name, "x", 9)
    yield lambda c, a, b: model_pauses.try_model(c, a.name, a.run, 9)
    yield lambda c, a, b: model_pauses.resume(c, a.name, a.run)
    yield lambda c, a, b: model_pauses.begin_request(c, a.run, a.workspace, 1, a.name, 1, limits(a.name))
    yield lambda c, a, b: model_pauses.end_request(c, a.run, 1, a.name, 1, limits(a.name))


def for_all_workspaces() -> Iterator[StoreCall]:
    """Nothing of the other is due: what is young, in use, under way or not yet wanted stays."""
    long_ago = datetime(1970, 1, 1, tzinfo=UTC)
    nothing = BatchResult(deleted=0, read=0, next_start=None)
    yield lambda c, a, b: returns(changes.delete_old_audit_events(c, LOWEST_ID, 9), nothing)
    yield lambda c, a, b: returns(changes.delete_old_receipts(c, long_ago, 7, 7, 9), nothing)
    yield lambda c, a, b: returns(files.delete_old(c, LOWEST_ID, None, 1, 9), nothing)
    yield lambda c, a, b: returns(expiry.with_files(c, LOWEST_ID, 1, 9), [])
    yield lambda c, a, b: returns(expiry.idle(c, [a.session, b.session], 1), [])
    yield lambda c, a, b: returns(people.delete_expired(c, 3600.0), 0)
    yield lambda c, a, b: returns(providers.delete_expired(c), 0)
    yield lambda c, a, b: returns(providers.due_providers(c), [a.name])
    yield lambda c, a, b: returns(providers.lock_overdue(c), Identity(a.url, a.name, a.user))
    yield lambda c, a, b: sessions.lock_deleted(c)
    yield lambda c, a, b: returns(webhooks.delete_old(c, LOWEST_ID, 30, 1, 9), nothing)
    yield lambda c, a, b: creation.replace_lost_jobs(c, 60)
    yield from _models()
    yield lambda c, a, b: closes(actions.expire(c, 9), a.action)
    yield lambda c, a, b: closes(actions.release(c, 9), a.action)
    yield lambda c, a, b: batches.take(c, 0, 9, 9, 60, 9)
    yield _free_slots
    yield _next_turn
    yield lambda c, a, b: returns(creation.leaving(c, True), [])
    yield lambda c, a, b: blobs.touch(c, {a.blob.hex(): 1})
    yield lambda c, a, b: returns(blobs.find(c, [a.blob.hex(), "78"]), [Blob(a.blob.hex(), a.version)])
    yield lambda c, a, b: returns(blobs.old(c, 24, 9), [])
    yield lambda c, a, b: returns(blobs.lock_unused(c, b.blob, 24), False)
    yield lambda c, a, b: returns(blobs.lock_unused(c, a.blob, 0), False)
    yield lambda c, a, b: returns(blobs.total_bytes(c), 2)
    yield lambda c, a, b: returns(
        blobs.starting_with(c, a.blob[0]), [StoredBlob(Blob(a.blob.hex(), a.version), bytes=1)]
    )
    yield lambda c, a, b: returns(blobs.touch_stored(c, Blob(a.blob.hex(), a.version)), True)
    yield lambda c, a, b: returns(blobs.touch_stored(c, Blob(b.blob.hex(), a.version)), False)
    yield lambda c, a, b: returns(blobs.is_used(c, Blob(a.blob.hex(), a.version)), True)
    yield _condemn
    yield lambda c, a, b: blobs.condemned(c, 9)
    yield lambda c, a, b: blobs.forget(c, Blob(a.condemned.hex(), a.version))
    yield _take_due
    yield lambda c, a, b: events.notify(c, ["x"])
    yield lambda c, a, b: events.notify_readers(c, ["x"])
    yield lambda c, a, b: sessions.new_event_ids(c, 2)
    yield lambda c, a, b: sessions.add_no_words(c)
    yield lambda c, a, b: credentials.encrypted_secrets(c)
    yield lambda c, a, b: webhooks.encrypted_secrets(c)
    yield lambda c, a, b: workspaces.all_workspaces(c, RetentionDays())
    yield lambda c, a, b: workspaces.retention_of_all(c)
    yield lambda c, a, b: workspaces.server_audit_days(c)
    yield lambda c, a, b: workspaces.lock_first_start(c)
    yield lambda c, a, b: workspaces.any_workspace(c)
    yield _figures
    yield lambda c, a, b: is_current(c)


async def closes(closing: Awaitable[list[ActionData]], action_id: UUID) -> None:
    assert [action.id for action in await closing] == [action_id]


async def _figures(c: RecordingConnection, a: Workspace, b: Workspace) -> None:
    """Numbers only, of both workspaces."""
    with read_only_twin(c) as connection:
        figures = read_figures(connection, "quarterdeck_app", 60)
        counts = read_counts(connection)
    assert counts == Counts({"running": 2, "queued": 2}, 2, {"budget": 2})
    assert figures.workers == 0
    assert not a.marks(repr(figures))


async def _copy_event(c: RecordingConnection, a: Workspace, b: Workspace) -> None:
    entries = await sessions.entries(c, a.session, 1_000_000, 9)
    new_ids = {one.id: one.id + 1_000_000 for one in entries}
    await sessions.copy_events(c, a.session, a.waiting_session, entries, [None] * len(entries), new_ids, set())
    row = await (
        await c.execute("SELECT count(*) FROM session_events WHERE session_id = %s", (a.waiting_session,))
    ).fetchone()
    assert row == (len(entries),)


async def _free_slots(c: RecordingConnection, a: Workspace, b: Workspace) -> None:
    """A slot that one workspace has free is not given to another."""
    await lifecycle.cancel(c, a.run)
    await creation.compare_jobs(c, 1)
    row = await (await c.execute("SELECT parked FROM runs WHERE id = %s", (a.parked_run,))).fetchone()
    assert row == (False,)


async def _next_turn(c: RecordingConnection, a: Workspace, b: Workspace) -> None:
    """The workspace whose last turn is longer ago."""
    worker_id = new_id()
    [job] = await queue_store.synchronize(c, worker_id, 30, 9, 1, [])
    assert job.run_id == a.run
    assert await queue_store.synchronize(c, worker_id, 30, 9, 0, [job.id]) == []
    await queue_store.unregister(c, worker_id)


async def _condemn(c: RecordingConnection, a: Workspace, b: Workspace) -> None:
    [blob] = await blobs.touch(c, {"78" * 32: 1})
    await blobs.condemn(c, b"x" * 32)
    assert blob in await blobs.condemned(c, 9)


async def _take_due(c: RecordingConnection, a: Workspace, b: Workspace) -> None:
    assert [one.id for one in await webhooks.claim(c, 9, {}, 9, 60)] == [a.delivery]

"""Calls of every store function with a workspace's own scope and the other workspace's ids. None may succeed."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from quarterdeck.agents import store as agents
from quarterdeck.agents.configuration import AgentConfiguration, AgentReference, Limit, Limits
from quarterdeck.api_keys import store as api_keys
from quarterdeck.changes import store as changes
from quarterdeck.changes.model import AuditQuery, ObjectType
from quarterdeck.connections.credentials import store as credentials
from quarterdeck.connections.mcp.model import McpTool
from quarterdeck.connections.servers import store as mcp_servers
from quarterdeck.connections.servers.model import McpServerBody
from quarterdeck.core.actors import ActorBody, Credential, CredentialKind, Role
from quarterdeck.core.ids import HIGHEST_ID, LOWEST_ID, new_id
from quarterdeck.core.retention import RetentionDays
from quarterdeck.core.settings import SubmitSettings
from quarterdeck.core.versioned import VersionedState
from quarterdeck.files import store as files
from quarterdeck.insights import service as insights_service
from quarterdeck.insights import store as insights
from quarterdeck.insights.model import UsageGroup, Window
from quarterdeck.models.model import NO_OPTIONS
from quarterdeck.people import provider_store as providers
from quarterdeck.people import store as people
from quarterdeck.runs import action_store as actions
from quarterdeck.runs import lifecycle_store as lifecycle
from quarterdeck.runs import store as runs
from quarterdeck.runs.action_model import ActionId, ActionQuery
from quarterdeck.runs.model import Submission, Usage, Verdict
from quarterdeck.sandbox.model import SandboxOptions
from quarterdeck.sessions import expiry_store as expiry
from quarterdeck.sessions import store as sessions
from quarterdeck.sessions.model import SessionBody
from quarterdeck.skills import store as skills
from quarterdeck.trusted_jobs import store as trusted_jobs
from quarterdeck.trusted_jobs.model import CreateTrustedJobBody
from quarterdeck.webhooks import store as webhooks
from quarterdeck.webhooks.model import (
    DeliveryState,
    WebhookBody,
    WebhookEvent,
)
from quarterdeck.workspaces import store as workspaces
from tests.store.two_workspaces import ALPHA, BRAVO, BUNDLE, RecordingConnection, StoreCall, Workspace, refused, returns

ORDERS = (True, False)


def session_of(workspace: Workspace, session: Workspace) -> SessionBody:
    return SessionBody(
        id=session.session,
        workspace_id=workspace.workspace,
        title="taken",
        model=None,
        effective_model="demo",
        settings=NO_OPTIONS,
        instructions=None,
        usage=Usage(0, 0, 0, 0, None),
        tool_policy={},
        client_tools=[],
        limits=Limits(),
        sandbox=SandboxOptions(),
        mcp_servers=[],
        output_schema=None,
        fallback_models=[],
        agent=None,
        overrides=[],
        forked_from=None,
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
        events=[WebhookEvent.RUN_FAILED],
        description="taken",
        enabled=False,
        disabled_reason="taken",
        previous_secret_expires_at=None,
        created_at=datetime.now(UTC),
        created_by=ActorBody(webhook.user, None, webhook.email),
        revision=7,
    )


TAKEN = VersionedState(revision=1, name="taken", latest_version=1, default_version=None, archived=True)
TAKEN_TOOL = McpTool(name="taken", description="taken", parameters={})


def mcp_server_of(workspace: Workspace) -> McpServerBody:
    return McpServerBody(
        id=workspace.mcp_server,
        name="taken",
        url="https://taken.example.com/",
        command=None,
        credential_id=None,
        checked_at=None,
        check_failure=None,
        tool_count=0,
        created_at=datetime.now(UTC),
        created_by=ActorBody(workspace.user, None, workspace.email),
        revision=7,
    )


def submission(mine: Workspace, kind: CredentialKind, session: Workspace, header: Workspace | None) -> Submission:
    secret_hash = mine.key_hash if kind is CredentialKind.API_KEY else mine.token_hash
    return Submission(
        credential=Credential(kind, secret_hash),
        session_id=session.session,
        workspace_id=None if header is None else header.workspace,
        text="taken",
        idempotency_key="the same",
        fingerprint=b"",
        owner=mine.workspace,
    )


async def verdicts(c: RecordingConnection, *batch: Submission) -> list[Verdict]:
    return [
        submitted.verdict for submitted in await runs.submit(c, batch, settings=SubmitSettings(), wait_for_locks=True)
    ]


def with_foreign_ids() -> Iterator[StoreCall]:
    """As a caller of one workspace would who has got hold of the other's ids. The scope is the workspace, or the
    session, skill or webhook in it that was seen."""
    window = insights_service.activity_window(datetime.now(UTC) + timedelta(seconds=1), 60)
    yield lambda c, a, b: returns(_states(c, a, window), {"running": 1, "queued": 1, "succeeded": 1})
    yield lambda c, a, b: returns(insights.run_limit_time(c, a.workspace, window, 3), None)
    later = datetime.now(UTC) + timedelta(minutes=1)
    yield lambda c, a, b: returns(insights.unfinished_before(c, a.workspace, later, 9), {"running": 1, "queued": 1})
    yield lambda c, a, b: returns(_inputs(c, a, window), 1)
    yield lambda c, a, b: returns(insights.input_limit_time(c, a.workspace, window, 1), None)

    yield lambda c, a, b: returns(api_keys.get(c, a.workspace, b.key), None)
    yield lambda c, a, b: api_keys.active_of_user(c, a.workspace, b.user)
    yield lambda c, a, b: api_keys.revoke_all(c, a.workspace, [b.key])
    yield lambda c, a, b: api_keys.max_days(c, a.workspace)
    yield lambda c, a, b: refused(api_keys.lock(c, a.workspace, b.key))
    yield lambda c, a, b: api_keys.replace(c, a.workspace, b.key, a.key, 0)
    yield lambda c, a, b: api_keys.revoke(c, a.workspace, b.key)
    yield lambda c, a, b: api_keys.of_user(c, a.workspace, b.user)

    claim = (ALPHA.key, "create_session", BRAVO.name, b"")
    yield lambda c, a, b: returns(changes.find_receipt(c, changes.Claim(*claim)), None)

    yield lambda c, a, b: lifecycle.unpark_next(c, a.workspace)
    for kind in CredentialKind:
        for header in (None, ALPHA, BRAVO):
            foreign = submission(ALPHA, kind, BRAVO, header)
            yield lambda c, a, b, foreign=foreign: returns(verdicts(c, foreign), [Verdict.NOT_FOUND])  # type: ignore[misc]
    yield lambda c, a, b: returns(_refusal(c, a, b), Verdict.NOT_FOUND)
    yield lambda c, a, b: returns(runs.get(c, a.workspace, b.run), None)

    yield lambda c, a, b: returns(actions.get(c, a.workspace, b.action), None)
    yield lambda c, a, b: returns(actions.read(c, a.workspace, [ActionId(b.action)], 9), [])

    yield lambda c, a, b: returns(sessions.get_token(c, a.session, b.token), None)
    yield lambda c, a, b: sessions.revoke_token(c, a.session, b.token)

    yield lambda c, a, b: sessions.change(c, session_of(a, b))
    yield lambda c, a, b: returns(sessions.get(c, a.workspace, b.session, "demo"), None)
    yield lambda c, a, b: sessions.delete(c, a.workspace, b.session)

    of_b = AgentReference(BRAVO.agent, 1)
    yield lambda c, a, b: returns(agents.get(c, a.workspace, b.agent), None)
    yield lambda c, a, b: returns(agents.state(c, a.workspace, b.agent), None)
    yield lambda c, a, b: returns(agents.lock(c, a.workspace, b.agent), None)
    yield lambda c, a, b: returns(agents.is_name_taken(c, a.workspace, b.name), False)
    yield lambda c, a, b: agents.change(c, a.workspace, b.agent, TAKEN)
    yield lambda c, a, b: returns(agents.version(c, a.workspace, b.agent, 1), None)
    yield lambda c, a, b: returns(agents.used(c, a.workspace, [of_b], summaries=False), {})
    yield lambda c, a, b: returns(agents.used(c, a.workspace, [of_b], summaries=True), {})
    yield lambda c, a, b: returns(
        agents.add_version(c, new_id(), a.workspace, b.agent, AgentConfiguration(), a.user), None
    )
    yield lambda c, a, b: returns(insights.run_at(c, a.workspace, b.agent, LOWEST_ID, HIGHEST_ID, 0), None)
    yield lambda c, a, b: returns(insights.version_stats(c, a.workspace, b.agent, LOWEST_ID, HIGHEST_ID, 9, 9), [])
    yield lambda c, a, b: sessions.forget_raised_limits(c, session_of(a, b), ["max_cost_usd", "max_tokens"])
    yield lambda c, a, b: sessions.follow_agent(c, a.workspace, b.session, AgentConfiguration(sandbox=None))
    yield lambda c, a, b: returns(skills.get(c, a.workspace, b.skill), None)
    yield lambda c, a, b: skills.change(c, a.workspace, b.skill, TAKEN)
    yield lambda c, a, b: returns(skills.version(c, a.workspace, b.skill, 1), None)
    yield lambda c, a, b: returns(skills.used_versions(c, a.workspace, [(b.skill, 1)]), [])
    yield lambda c, a, b: returns(skills.usable(c, a.workspace, b.skill), None)
    yield lambda c, a, b: returns(files.get(c, a.workspace, b.file), None)
    yield lambda c, a, b: returns(files.delete(c, a.workspace, b.file), False)
    yield lambda c, a, b: returns(skills.add_version(c, new_id(), a.workspace, b.skill, BUNDLE, a.user), None)
    yield lambda c, a, b: returns(skills.lock(c, a.workspace, b.skill), None)
    yield lambda c, a, b: returns(skills.lock_to_delete(c, a.workspace, b.skill), None)
    yield lambda c, a, b: returns(skills.is_name_taken(c, a.workspace, b.name), False)
    yield lambda c, a, b: returns(skills.is_in_use(c, a.workspace, b.skill), False)
    yield lambda c, a, b: skills.delete(c, a.workspace, b.skill)

    yield lambda c, a, b: returns(credentials.count(c, a.workspace), 1)
    yield lambda c, a, b: returns(credentials.is_name_taken(c, a.workspace, b.name), False)
    yield lambda c, a, b: returns(credentials.get(c, a.workspace, b.credential), None)
    yield lambda c, a, b: returns(credentials.stored(c, a.workspace, b.credential), None)
    yield lambda c, a, b: returns(credentials.hold(c, a.workspace, b.credential), False)
    yield lambda c, a, b: credentials.lock(c, a.workspace, b.credential)
    yield lambda c, a, b: returns(credentials.is_used(c, a.workspace, b.credential), False)
    yield lambda c, a, b: credentials.rotate(c, a.workspace, b.credential, b"taken")
    yield lambda c, a, b: credentials.delete(c, a.workspace, b.credential)
    yield lambda c, a, b: returns(webhooks.count(c, a.workspace), 1)
    yield lambda c, a, b: returns(webhooks.get(c, a.workspace, b.webhook), None)
    yield lambda c, a, b: webhooks.lock(c, a.workspace, b.webhook)
    yield lambda c, a, b: webhooks.change(c, a.workspace, webhook_of(b), "taken")
    yield lambda c, a, b: webhooks.rotate(c, a.workspace, b.webhook, b"taken", 60)
    yield lambda c, a, b: webhooks.delete(c, a.workspace, b.webhook)
    yield lambda c, a, b: webhooks.subscribers(c, a.workspace, WebhookEvent.RUN_SUCCEEDED)
    yield lambda c, a, b: returns(webhooks.get_delivery(c, a.workspace, b.webhook, b.delivery), None)
    yield lambda c, a, b: returns(webhooks.get_delivery(c, a.workspace, a.webhook, b.delivery), None)
    yield lambda c, a, b: webhooks.send_again(c, a.webhook, b.delivery)

    yield lambda c, a, b: returns(mcp_servers.count(c, a.workspace), 1)
    yield lambda c, a, b: returns(mcp_servers.is_name_taken(c, a.workspace, b.name), False)
    yield lambda c, a, b: returns(mcp_servers.get(c, a.workspace, b.mcp_server), None)
    yield lambda c, a, b: returns(mcp_servers.existing(c, a.workspace, [b.mcp_server]), set())
    yield lambda c, a, b: returns(mcp_servers.lock(c, a.workspace, b.mcp_server), False)
    yield lambda c, a, b: mcp_servers.change(c, a.workspace, mcp_server_of(b))
    yield lambda c, a, b: mcp_servers.delete(c, a.workspace, b.mcp_server)
    yield lambda c, a, b: mcp_servers.note_check(c, a.workspace, b.mcp_server, "taken")
    yield lambda c, a, b: returns(mcp_servers.tools(c, a.workspace, b.mcp_server), [])
    yield lambda c, a, b: returns(mcp_servers.hashes(c, a.workspace, b.mcp_server), {})
    yield lambda c, a, b: mcp_servers.forget_tools(c, a.workspace, b.mcp_server)
    yield lambda c, a, b: mcp_servers.add_tools(c, a.workspace, b.mcp_server, [TAKEN_TOOL])

    yield lambda c, a, b: returns(sessions.tokens_of_user(c, a.workspace, b.user), [])
    yield lambda c, a, b: people.lock_workspace(c, a.workspace)
    yield lambda c, a, b: returns(people.settle_owner(c, a.workspace), True)
    yield lambda c, a, b: returns(people.member(c, a.workspace, b.user), None)
    yield lambda c, a, b: returns(providers.membership(c, a.workspace, b.user), None)
    yield lambda c, a, b: returns(providers.has_other_owner(c, a.workspace, a.user), False)
    yield lambda c, a, b: returns(people.member_by_email(c, a.workspace, b.email), None)
    yield lambda c, a, b: returns(people.set_role(c, a.workspace, b.user, Role.VIEWER), False)
    yield lambda c, a, b: returns(people.invitation(c, a.workspace, b.invitation), None)
    yield lambda c, a, b: returns(people.withdraw_invitation(c, a.workspace, b.invitation), False)
    yield lambda c, a, b: returns(people.device(c, a.user, b.device), None)
    yield lambda c, a, b: returns(people.end_devices(c, a.user, [b.device]), 0)
    yield lambda c, a, b: returns(trusted_jobs.get(c, a.workspace, b.trusted_job), None)
    yield lambda c, a, b: returns(trusted_jobs.of_user(c, a.workspace, b.user), [])
    yield lambda c, a, b: returns(trusted_jobs.delete(c, a.workspace, b.trusted_job), False)
    job = CreateTrustedJobBody("taken", "x", {})
    yield lambda c, a, b: trusted_jobs.add(c, new_id(), a.workspace, b.skill, a.user, job)
    kept = RetentionDays(run_days=1)
    yield lambda c, a, b: workspaces.change(c, a.workspace, "taken", 1, a.user, Limit(), kept)
    today = datetime.now(UTC).date()
    for group in UsageGroup:
        yield lambda c, a, b, group=group: insights.usage_items(  # type: ignore[misc]
            c, a.workspace, group, today - timedelta(days=9), today + timedelta(days=1), 9, 9
        )
    yield lambda c, a, b: insights.day_at(c, a.workspace, today - timedelta(days=9), today + timedelta(days=1), 0)
    yield lambda c, a, b: insights.delete_old_usage(c, a.workspace, 0, 9)
    yield lambda c, a, b: workspaces.get(c, a.workspace, RetentionDays())
    yield lambda c, a, b: expiry.with_old_inputs(c, a.workspace, (datetime(1970, 1, 1, tzinfo=UTC), 0), 0, 9)
    yield lambda c, a, b: expiry.with_old_runs(c, a.workspace, LOWEST_ID, 0, 9)
    yield lambda c, a, b: expiry.old_forks(c, a.workspace, LOWEST_ID, 0, 9)
    yield lambda c, a, b: returns(people.end_member(c, a.workspace, b.user), False)
    for newest_first in ORDERS:
        yield from _pages(newest_first=newest_first)


def _pages(*, newest_first: bool) -> Iterator[StoreCall]:
    """From the other's objects on, and from the very beginning."""
    order = {"newest_first": newest_first}
    beginning = HIGHEST_ID if newest_first else LOWEST_ID
    filters = (
        AuditQuery(),
        AuditQuery(action="create_session"),
        AuditQuery(object_type=ObjectType.SESSION),
        AuditQuery(object_id=BRAVO.session),
        AuditQuery(user_id=BRAVO.user),
    )
    for wanted in filters:
        yield lambda c, a, b, w=wanted: changes.page_of_audit_events(c, a.workspace, beginning, 9, filters=w, **order)  # type: ignore[misc]
    for of in (ActionQuery(), ActionQuery(session_id=BRAVO.session)):
        yield lambda c, a, b, w=of: actions.page(c, a.workspace, beginning, 9, filters=w, **order)  # type: ignore[misc]
    for start in (beginning, None):
        yield lambda c, a, b, s=start: api_keys.page(c, a.workspace, s or b.key, 9, **order)  # type: ignore[misc]
        yield lambda c, a, b, s=start: api_keys.page(  # type: ignore[misc]
            c, a.workspace, s or b.key, 9, b.user, filter_key=api_keys._OF_USER, **order
        )
        yield lambda c, a, b, s=start: runs.page(c, a.session, s or b.run, 9, **order)  # type: ignore[misc]
        yield lambda c, a, b, s=start: sessions.page_of_tokens(c, a.session, s or b.token, 9, **order)  # type: ignore[misc]
        yield lambda c, a, b, s=start: agents.versions(  # type: ignore[misc]
            c, a.agent, s or b.agent_version, 9, **order
        )
        yield lambda c, a, b, s=start: skills.versions(c, a.skill, s or b.version, 9, **order)  # type: ignore[misc]
        yield lambda c, a, b, s=start: credentials.page(c, a.workspace, s or b.credential, 9, **order)  # type: ignore[misc]
        yield lambda c, a, b, s=start: webhooks.page(c, a.workspace, s or b.webhook, 9, **order)  # type: ignore[misc]
        yield lambda c, a, b, s=start: mcp_servers.page(c, a.workspace, s or b.mcp_server, 9, **order)  # type: ignore[misc]
        yield lambda c, a, b, s=start: trusted_jobs.page(c, a.workspace, s or b.trusted_job, 9, **order)  # type: ignore[misc]
        yield lambda c, a, b, s=start: people.members(c, a.workspace, s or b.user, 9, **order)  # type: ignore[misc]
        yield lambda c, a, b, s=start: people.invitations(c, a.workspace, s or b.invitation, 9, **order)  # type: ignore[misc]
        yield lambda c, a, b, s=start: people.devices(c, a.user, s or b.device, 9, **order)  # type: ignore[misc]
        for state in (None, DeliveryState.PENDING):
            yield lambda c, a, b, s=start, of=state: webhooks.page_of_deliveries(  # type: ignore[misc]
                c, a.webhook, s or b.delivery, 9, state=of, **order
            )
        for archived in (True, False):
            yield lambda c, a, b, s=start, of=archived: sessions.page(  # type: ignore[misc]
                c, a.workspace, s or b.session, 9, default_model="demo", archived=of, search=None, **order
            )
            yield lambda c, a, b, s=start, of=archived: sessions.page(  # type: ignore[misc]
                c,
                a.workspace,
                s or b.session,
                9,
                default_model="demo",
                archived=of,
                search="alpha or bravo",
                in_conversations=True,
                **order,
            )
            for most in (0, 9):
                yield lambda c, a, b, s=start, of=archived, most=most: sessions.find(  # type: ignore[misc]
                    c, a.workspace, s or LOWEST_ID, 9, archived=of, search="alpha or bravo", max_matches=most, **order
                )
            yield lambda c, a, b, s=start, of=archived: agents.page(  # type: ignore[misc]
                c, a.workspace, s or b.agent, 9, filter_key=of, **order
            )
            yield lambda c, a, b, s=start, of=archived: skills.page(  # type: ignore[misc]
                c, a.workspace, s or b.skill, 9, filter_key=of, **order
            )


async def _states(c: RecordingConnection, a: Workspace, window: Window) -> dict[str, int]:
    return dict((await insights.count_runs(c, a.workspace, window, 9)).by_state)


async def _inputs(c: RecordingConnection, a: Workspace, window: Window) -> int:
    return (await insights.count_inputs(c, a.workspace, window, 9)).total()


async def _refusal(c: RecordingConnection, a: Workspace, b: Workspace) -> Verdict | None:
    credential = Credential(CredentialKind.API_KEY, a.key_hash)
    return (await runs.find_submitter(c, credential, b.session, None)).refusal

"""A method for each operation of the API. Written by codegen/client.py (`make client`) from the route table."""

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Literal

from msgspec import UNSET, UnsetType

from quarterdeck.activity.model import ActivityBody
from quarterdeck.api_keys.model import ApiKeyBody, ApiKeyPage, CreatedApiKeyBody
from quarterdeck.audit.model import AuditEventBody, AuditEventPage
from quarterdeck.auth.model import CallerBody
from quarterdeck.client.async_connection import AsyncConnection
from quarterdeck.client.model import EventPage
from quarterdeck.client.operations import (
    CANCEL_RUN,
    CHANGE_SESSION,
    CHANGE_SKILL,
    CHANGE_WEBHOOK,
    CREATE_API_KEY,
    CREATE_SESSION,
    CREATE_SESSION_TOKEN,
    CREATE_SKILL,
    CREATE_WEBHOOK,
    DELETE_SESSION,
    DELETE_WEBHOOK,
    DIFF_SKILL_VERSIONS,
    DOWNLOAD_SKILL_BUNDLE,
    DOWNLOAD_SKILL_FILE,
    GET_ACTIVITY,
    GET_API_KEY,
    GET_RUN,
    GET_SESSION,
    GET_SKILL,
    GET_SKILL_VERSION,
    GET_WEBHOOK,
    GET_WORKSPACE,
    LIST_API_KEYS,
    LIST_AUDIT_EVENTS,
    LIST_MEMBERS,
    LIST_SESSION_EVENTS,
    LIST_SESSION_RUNS,
    LIST_SESSION_TOKENS,
    LIST_SESSIONS,
    LIST_SKILL_VERSIONS,
    LIST_SKILLS,
    LIST_WEBHOOK_DELIVERIES,
    LIST_WEBHOOKS,
    PUSH_SKILL_VERSION,
    REDELIVER_WEBHOOK,
    REVOKE_API_KEY,
    REVOKE_SESSION_TOKEN,
    ROTATE_API_KEY,
    ROTATE_WEBHOOK_SECRET,
    SUBMIT_INPUT,
    TEST_WEBHOOK,
    WHOAMI,
)
from quarterdeck.client.paging import walk_async
from quarterdeck.client.requests import Id, IfMatch
from quarterdeck.client.transfers import Progress, Sink, Source
from quarterdeck.conversations.runs.model import CancelledRunBody, RunBody, RunPage, SubmitKindBody
from quarterdeck.conversations.session_tokens.model import CreatedSessionTokenBody, SessionTokenBody, SessionTokenPage
from quarterdeck.conversations.sessions.model import ListedSession, SessionBody, SessionPage, SessionSkill
from quarterdeck.core.actors import Permission
from quarterdeck.skills.model import (
    SkillBody,
    SkillDiffBody,
    SkillPage,
    SkillVersionBody,
    SkillVersionItem,
    SkillVersionPage,
)
from quarterdeck.webhooks.model import (
    CreatedWebhookBody,
    RunEvent,
    WebhookBody,
    WebhookDeliveryBody,
    WebhookDeliveryPage,
    WebhookPage,
)
from quarterdeck.workspaces.model import MemberBody, MemberPage, WorkspaceBody


class AsyncMethods(AsyncConnection):
    async def submit_input(
        self, session_id: Id, *, text: str, idempotency_key: str | None = None, workspace_id: Id | None = None
    ) -> SubmitKindBody:
        """Submit a user turn to a session.

        Starts a run when none is active, steers the active one otherwise, and says which.
        """
        return await self._call(
            SUBMIT_INPUT,
            SubmitKindBody,
            {"session_id": session_id},
            {},
            {"type": "input", "text": text},
            idempotency_key=idempotency_key,
            workspace_id=workspace_id,
        )

    async def list_session_events(
        self, session_id: Id, *, limit: int | None = None, after: int | None = None, workspace_id: Id | None = None
    ) -> EventPage:
        """Read the log of a session.

        Oldest first: what was asked, what the agent did, how its runs ended. One page per call, or, with `Accept:
        text/event-stream`, everything from `after` on and then what comes, as it comes.
        """
        return await self._call(
            LIST_SESSION_EVENTS,
            EventPage,
            {"session_id": session_id},
            {"limit": limit, "after": after},
            workspace_id=workspace_id,
        )

    async def list_sessions(
        self,
        *,
        archived: bool | None = None,
        search: str | None = None,
        limit: int | None = None,
        after: Id | None = None,
        order: Literal["asc", "desc"] | None = None,
        workspace_id: Id | None = None,
    ) -> SessionPage:
        """List the sessions of a workspace.

        One page per call, newest first unless order=asc.
        """
        return await self._call(
            LIST_SESSIONS,
            SessionPage,
            {},
            {"archived": archived, "search": search, "limit": limit, "after": after, "order": order},
            workspace_id=workspace_id,
        )

    def iter_sessions(
        self,
        *,
        archived: bool | None = None,
        search: str | None = None,
        order: Literal["asc", "desc"] | None = None,
        page_size: int | None = None,
        workspace_id: Id | None = None,
    ) -> AsyncIterator[ListedSession]:
        """All that `list_sessions` lists, each page fetched when it is needed."""
        return walk_async(
            lambda after: self.list_sessions(
                archived=archived, search=search, workspace_id=workspace_id, limit=page_size, after=after, order=order
            )
        )

    async def create_session(
        self,
        *,
        title: str | None = None,
        model: str | None = None,
        instructions: str | None = None,
        skills: list[SessionSkill] | UnsetType = UNSET,
        idempotency_key: str | None = None,
        workspace_id: Id | None = None,
    ) -> SessionBody:
        """Create a session."""
        return await self._call(
            CREATE_SESSION,
            SessionBody,
            {},
            {},
            {"title": title, "model": model, "instructions": instructions, "skills": skills},
            idempotency_key=idempotency_key,
            workspace_id=workspace_id,
        )

    async def get_session(self, session_id: Id, *, workspace_id: Id | None = None) -> SessionBody:
        """Show a session."""
        return await self._call(GET_SESSION, SessionBody, {"session_id": session_id}, {}, workspace_id=workspace_id)

    async def change_session(
        self,
        session_id: Id,
        *,
        title: str | UnsetType | None = UNSET,
        model: str | UnsetType | None = UNSET,
        instructions: str | UnsetType | None = UNSET,
        skills: list[SessionSkill] | UnsetType = UNSET,
        archived: bool | UnsetType = UNSET,
        if_match: IfMatch | None = None,
        idempotency_key: str | None = None,
        workspace_id: Id | None = None,
    ) -> SessionBody:
        """Change or archive a session.

        What is left out stays as it is. A run that is under way goes on as it began; the next one takes up the change.
        An archived session refuses input with 409; what it has accepted is still worked on.
        """
        return await self._call(
            CHANGE_SESSION,
            SessionBody,
            {"session_id": session_id},
            {},
            {"title": title, "model": model, "instructions": instructions, "skills": skills, "archived": archived},
            if_match=if_match,
            idempotency_key=idempotency_key,
            workspace_id=workspace_id,
        )

    async def delete_session(
        self, session_id: Id, *, if_match: IfMatch | None = None, workspace_id: Id | None = None
    ) -> None:
        """Delete a session.

        With its log, its runs and its tokens, for good. Its active run is cancelled. Again is 404.
        """
        return await self._call(
            DELETE_SESSION, type(None), {"session_id": session_id}, {}, if_match=if_match, workspace_id=workspace_id
        )

    async def list_session_tokens(
        self,
        session_id: Id,
        *,
        limit: int | None = None,
        after: Id | None = None,
        order: Literal["asc", "desc"] | None = None,
        workspace_id: Id | None = None,
    ) -> SessionTokenPage:
        """List the tokens of a session.

        One page per call, newest first unless order=asc. Ended tokens are listed too.
        """
        return await self._call(
            LIST_SESSION_TOKENS,
            SessionTokenPage,
            {"session_id": session_id},
            {"limit": limit, "after": after, "order": order},
            workspace_id=workspace_id,
        )

    def iter_session_tokens(
        self,
        session_id: Id,
        *,
        order: Literal["asc", "desc"] | None = None,
        page_size: int | None = None,
        workspace_id: Id | None = None,
    ) -> AsyncIterator[SessionTokenBody]:
        """All that `list_session_tokens` lists, each page fetched when it is needed."""
        return walk_async(
            lambda after: self.list_session_tokens(
                session_id, workspace_id=workspace_id, limit=page_size, after=after, order=order
            )
        )

    async def create_session_token(
        self,
        session_id: Id,
        *,
        expires_at: datetime | None = None,
        idempotency_key: str | None = None,
        workspace_id: Id | None = None,
    ) -> CreatedSessionTokenBody:
        """Create a token for one session.

        It holds no permissions, works on its own session only, and ends when the key that made it is revoked.
        """
        return await self._call(
            CREATE_SESSION_TOKEN,
            CreatedSessionTokenBody,
            {"session_id": session_id},
            {},
            {"expires_at": expires_at},
            idempotency_key=idempotency_key,
            workspace_id=workspace_id,
        )

    async def revoke_session_token(
        self,
        session_id: Id,
        session_token_id: Id,
        *,
        idempotency_key: str | None = None,
        workspace_id: Id | None = None,
    ) -> SessionTokenBody:
        """Revoke a token of a session.

        Takes effect at once, on open event streams too. Again is no error.
        """
        return await self._call(
            REVOKE_SESSION_TOKEN,
            SessionTokenBody,
            {"session_id": session_id, "session_token_id": session_token_id},
            {},
            idempotency_key=idempotency_key,
            workspace_id=workspace_id,
        )

    async def list_session_runs(
        self,
        session_id: Id,
        *,
        limit: int | None = None,
        after: Id | None = None,
        order: Literal["asc", "desc"] | None = None,
        workspace_id: Id | None = None,
    ) -> RunPage:
        """List the runs of a session.

        One page per call, newest first unless order=asc.
        """
        return await self._call(
            LIST_SESSION_RUNS,
            RunPage,
            {"session_id": session_id},
            {"limit": limit, "after": after, "order": order},
            workspace_id=workspace_id,
        )

    def iter_session_runs(
        self,
        session_id: Id,
        *,
        order: Literal["asc", "desc"] | None = None,
        page_size: int | None = None,
        workspace_id: Id | None = None,
    ) -> AsyncIterator[RunBody]:
        """All that `list_session_runs` lists, each page fetched when it is needed."""
        return walk_async(
            lambda after: self.list_session_runs(
                session_id, workspace_id=workspace_id, limit=page_size, after=after, order=order
            )
        )

    async def get_run(self, run_id: Id, *, workspace_id: Id | None = None) -> RunBody:
        """Show a run."""
        return await self._call(GET_RUN, RunBody, {"run_id": run_id}, {}, workspace_id=workspace_id)

    async def cancel_run(
        self, run_id: Id, *, idempotency_key: str | None = None, workspace_id: Id | None = None
    ) -> CancelledRunBody:
        """Cancel a run.

        Ends it at once, wherever it is being worked on. Cancelling one that has ended changes nothing.
        """
        return await self._call(
            CANCEL_RUN,
            CancelledRunBody,
            {"run_id": run_id},
            {},
            idempotency_key=idempotency_key,
            workspace_id=workspace_id,
        )

    async def whoami(self, *, workspace_id: Id | None = None) -> CallerBody:
        """Show who the caller is.

        The credential that the call carries: what it may do, where, until when, and who made it. Any key or session
        token may ask.
        """
        return await self._call(WHOAMI, CallerBody, {}, {}, workspace_id=workspace_id)

    async def list_api_keys(
        self,
        *,
        limit: int | None = None,
        after: Id | None = None,
        order: Literal["asc", "desc"] | None = None,
        workspace_id: Id | None = None,
    ) -> ApiKeyPage:
        """List the API keys of a workspace.

        One page per call, newest first unless order=asc. Revoked keys are listed too.
        """
        return await self._call(
            LIST_API_KEYS, ApiKeyPage, {}, {"limit": limit, "after": after, "order": order}, workspace_id=workspace_id
        )

    def iter_api_keys(
        self,
        *,
        order: Literal["asc", "desc"] | None = None,
        page_size: int | None = None,
        workspace_id: Id | None = None,
    ) -> AsyncIterator[ApiKeyBody]:
        """All that `list_api_keys` lists, each page fetched when it is needed."""
        return walk_async(
            lambda after: self.list_api_keys(workspace_id=workspace_id, limit=page_size, after=after, order=order)
        )

    async def create_api_key(
        self,
        *,
        label: str,
        permissions: list[Permission],
        expires_at: datetime | None = None,
        idempotency_key: str | None = None,
        workspace_id: Id | None = None,
    ) -> CreatedApiKeyBody:
        """Create an API key.

        With no permission that the calling key lacks and no longer life than its own. Where the workspace has set a
        longest life, `expires_at` must lie within it.
        """
        return await self._call(
            CREATE_API_KEY,
            CreatedApiKeyBody,
            {},
            {},
            {"label": label, "permissions": permissions, "expires_at": expires_at},
            idempotency_key=idempotency_key,
            workspace_id=workspace_id,
        )

    async def get_api_key(self, api_key_id: Id, *, workspace_id: Id | None = None) -> ApiKeyBody:
        """Show an API key."""
        return await self._call(GET_API_KEY, ApiKeyBody, {"api_key_id": api_key_id}, {}, workspace_id=workspace_id)

    async def revoke_api_key(
        self, api_key_id: Id, *, idempotency_key: str | None = None, workspace_id: Id | None = None
    ) -> ApiKeyBody:
        """Revoke an API key.

        Takes effect at once, also on session tokens that the key made. Again is no error.
        """
        return await self._call(
            REVOKE_API_KEY,
            ApiKeyBody,
            {"api_key_id": api_key_id},
            {},
            idempotency_key=idempotency_key,
            workspace_id=workspace_id,
        )

    async def rotate_api_key(
        self,
        api_key_id: Id,
        *,
        overlap_seconds: int = 86400,
        idempotency_key: str | None = None,
        workspace_id: Id | None = None,
    ) -> CreatedApiKeyBody:
        """Rotate an API key.

        Makes a new key with the same label, permissions and expiry. The old one goes on working for the overlap and
        ends then; tokens that it made live on until their own time. An Idempotency-Key that was used with the old key
        is known to the new one too.
        """
        return await self._call(
            ROTATE_API_KEY,
            CreatedApiKeyBody,
            {"api_key_id": api_key_id},
            {},
            {"overlap_seconds": overlap_seconds},
            idempotency_key=idempotency_key,
            workspace_id=workspace_id,
        )

    async def create_skill(
        self, *, name: str, idempotency_key: str | None = None, workspace_id: Id | None = None
    ) -> SkillBody:
        """Create a skill.

        Its content comes with its versions.
        """
        return await self._call(
            CREATE_SKILL, SkillBody, {}, {}, {"name": name}, idempotency_key=idempotency_key, workspace_id=workspace_id
        )

    async def list_skills(
        self,
        *,
        archived: bool | None = None,
        limit: int | None = None,
        after: Id | None = None,
        order: Literal["asc", "desc"] | None = None,
        workspace_id: Id | None = None,
    ) -> SkillPage:
        """List the skills of a workspace.

        One page per call, newest first unless order=asc. Archived ones are a list of their own.
        """
        return await self._call(
            LIST_SKILLS,
            SkillPage,
            {},
            {"archived": archived, "limit": limit, "after": after, "order": order},
            workspace_id=workspace_id,
        )

    def iter_skills(
        self,
        *,
        archived: bool | None = None,
        order: Literal["asc", "desc"] | None = None,
        page_size: int | None = None,
        workspace_id: Id | None = None,
    ) -> AsyncIterator[SkillBody]:
        """All that `list_skills` lists, each page fetched when it is needed."""
        return walk_async(
            lambda after: self.list_skills(
                archived=archived, workspace_id=workspace_id, limit=page_size, after=after, order=order
            )
        )

    async def get_skill(self, skill_id: Id, *, workspace_id: Id | None = None) -> SkillBody:
        """Get a skill."""
        return await self._call(GET_SKILL, SkillBody, {"skill_id": skill_id}, {}, workspace_id=workspace_id)

    async def change_skill(
        self,
        skill_id: Id,
        *,
        name: str | UnsetType = UNSET,
        default_version: int | UnsetType | None = UNSET,
        archived: bool | UnsetType = UNSET,
        if_match: IfMatch | None = None,
        idempotency_key: str | None = None,
        workspace_id: Id | None = None,
    ) -> SkillBody:
        """Change a skill.

        What is left out stays as it is. An earlier `default_version` takes back a push: sessions that pin no version
        use it from their next run on. An archived skill takes no versions and no sessions; those that have it keep it.
        """
        return await self._call(
            CHANGE_SKILL,
            SkillBody,
            {"skill_id": skill_id},
            {},
            {"name": name, "default_version": default_version, "archived": archived},
            if_match=if_match,
            idempotency_key=idempotency_key,
            workspace_id=workspace_id,
        )

    async def push_skill_version(
        self,
        skill_id: Id,
        archive: Source,
        *,
        progress: Progress | None = None,
        if_match: IfMatch | None = None,
        idempotency_key: str | None = None,
        workspace_id: Id | None = None,
    ) -> SkillVersionBody:
        """Push a new version of a skill.

        A gzipped tar of the bundle's folder, SKILL.md at its root. Versions count from 1 without gaps.
        """
        return await self._upload(
            PUSH_SKILL_VERSION,
            SkillVersionBody,
            {"skill_id": skill_id},
            {},
            archive,
            progress,
            if_match=if_match,
            idempotency_key=idempotency_key,
            workspace_id=workspace_id,
        )

    async def list_skill_versions(
        self,
        skill_id: Id,
        *,
        limit: int | None = None,
        after: Id | None = None,
        order: Literal["asc", "desc"] | None = None,
        workspace_id: Id | None = None,
    ) -> SkillVersionPage:
        """List the versions of a skill.

        By number, newest first unless order=asc. Without their manifests, which the version itself has.
        """
        return await self._call(
            LIST_SKILL_VERSIONS,
            SkillVersionPage,
            {"skill_id": skill_id},
            {"limit": limit, "after": after, "order": order},
            workspace_id=workspace_id,
        )

    def iter_skill_versions(
        self,
        skill_id: Id,
        *,
        order: Literal["asc", "desc"] | None = None,
        page_size: int | None = None,
        workspace_id: Id | None = None,
    ) -> AsyncIterator[SkillVersionItem]:
        """All that `list_skill_versions` lists, each page fetched when it is needed."""
        return walk_async(
            lambda after: self.list_skill_versions(
                skill_id, workspace_id=workspace_id, limit=page_size, after=after, order=order
            )
        )

    async def get_skill_version(
        self, skill_id: Id, version: int, *, workspace_id: Id | None = None
    ) -> SkillVersionBody:
        """Get a version of a skill.

        As the push answered.
        """
        return await self._call(
            GET_SKILL_VERSION,
            SkillVersionBody,
            {"skill_id": skill_id, "version": version},
            {},
            workspace_id=workspace_id,
        )

    async def download_skill_bundle(
        self, skill_id: Id, version: int, to: Sink, *, progress: Progress | None = None, workspace_id: Id | None = None
    ) -> int:
        """Download the bundle of a version.

        The archive, byte for byte as it was pushed. A download that broke off is taken up again with Range.
        """
        return await self._download(
            DOWNLOAD_SKILL_BUNDLE,
            {"skill_id": skill_id, "version": version},
            {},
            to,
            progress,
            workspace_id=workspace_id,
        )

    async def download_skill_file(
        self,
        skill_id: Id,
        version: int,
        to: Sink,
        *,
        path: str,
        progress: Progress | None = None,
        workspace_id: Id | None = None,
    ) -> int:
        """Download one file of a version.

        The manifest of the version lists its files.
        """
        return await self._download(
            DOWNLOAD_SKILL_FILE,
            {"skill_id": skill_id, "version": version},
            {"path": path},
            to,
            progress,
            workspace_id=workspace_id,
        )

    async def diff_skill_versions(
        self, skill_id: Id, *, base: int, head: int, workspace_id: Id | None = None
    ) -> SkillDiffBody:
        """Compare two versions of a skill.

        Which files were added, removed or changed from `base` to `head`, with the lines of text files.
        """
        return await self._call(
            DIFF_SKILL_VERSIONS,
            SkillDiffBody,
            {"skill_id": skill_id},
            {"base": base, "head": head},
            workspace_id=workspace_id,
        )

    async def get_workspace(self, *, workspace_id: Id | None = None) -> WorkspaceBody:
        """Get the workspace.

        The one that the key belongs to.
        """
        return await self._call(GET_WORKSPACE, WorkspaceBody, {}, {}, workspace_id=workspace_id)

    async def list_members(
        self,
        *,
        limit: int | None = None,
        after: Id | None = None,
        order: Literal["asc", "desc"] | None = None,
        workspace_id: Id | None = None,
    ) -> MemberPage:
        """List the members of the workspace.

        One page per call, in the order in which the server first heard of them, latest first unless order=asc. Those
        who have left are listed too.
        """
        return await self._call(
            LIST_MEMBERS, MemberPage, {}, {"limit": limit, "after": after, "order": order}, workspace_id=workspace_id
        )

    def iter_members(
        self,
        *,
        order: Literal["asc", "desc"] | None = None,
        page_size: int | None = None,
        workspace_id: Id | None = None,
    ) -> AsyncIterator[MemberBody]:
        """All that `list_members` lists, each page fetched when it is needed."""
        return walk_async(
            lambda after: self.list_members(workspace_id=workspace_id, limit=page_size, after=after, order=order)
        )

    async def get_activity(self, *, minutes: int | None = None, workspace_id: Id | None = None) -> ActivityBody:
        """Count what went on in the workspace.

        Figures for charts: runs by state, inputs and the time that runs waited for a worker, in at most 60 stretches of
        equal length up to now. What was deleted is not counted.
        """
        return await self._call(GET_ACTIVITY, ActivityBody, {}, {"minutes": minutes}, workspace_id=workspace_id)

    async def list_audit_events(
        self,
        *,
        action: str | None = None,
        object_type: Literal[
            "api_key", "member", "run", "session", "session_token", "skill", "skill_version", "webhook", "workspace"
        ]
        | None = None,
        object_id: Id | None = None,
        user_id: Id | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
        after: Id | None = None,
        order: Literal["asc", "desc"] | None = None,
        workspace_id: Id | None = None,
    ) -> AuditEventPage:
        """List audit events.

        Who did what to which object from where: one entry for each change that was made, in the API or by the operator.
        Inputs are not here, they are in the log of their session. One page per call, newest first unless order=asc.
        Events are kept for a year, unless the server is set otherwise.
        """
        return await self._call(
            LIST_AUDIT_EVENTS,
            AuditEventPage,
            {},
            {
                "action": action,
                "object_type": object_type,
                "object_id": object_id,
                "user_id": user_id,
                "since": since,
                "until": until,
                "limit": limit,
                "after": after,
                "order": order,
            },
            workspace_id=workspace_id,
        )

    def iter_audit_events(
        self,
        *,
        action: str | None = None,
        object_type: Literal[
            "api_key", "member", "run", "session", "session_token", "skill", "skill_version", "webhook", "workspace"
        ]
        | None = None,
        object_id: Id | None = None,
        user_id: Id | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        order: Literal["asc", "desc"] | None = None,
        page_size: int | None = None,
        workspace_id: Id | None = None,
    ) -> AsyncIterator[AuditEventBody]:
        """All that `list_audit_events` lists, each page fetched when it is needed."""
        return walk_async(
            lambda after: self.list_audit_events(
                action=action,
                object_type=object_type,
                object_id=object_id,
                user_id=user_id,
                since=since,
                until=until,
                workspace_id=workspace_id,
                limit=page_size,
                after=after,
                order=order,
            )
        )

    async def list_webhooks(
        self,
        *,
        limit: int | None = None,
        after: Id | None = None,
        order: Literal["asc", "desc"] | None = None,
        workspace_id: Id | None = None,
    ) -> WebhookPage:
        """List the webhooks of a workspace.

        One page per call, newest first unless order=asc.
        """
        return await self._call(
            LIST_WEBHOOKS, WebhookPage, {}, {"limit": limit, "after": after, "order": order}, workspace_id=workspace_id
        )

    def iter_webhooks(
        self,
        *,
        order: Literal["asc", "desc"] | None = None,
        page_size: int | None = None,
        workspace_id: Id | None = None,
    ) -> AsyncIterator[WebhookBody]:
        """All that `list_webhooks` lists, each page fetched when it is needed."""
        return walk_async(
            lambda after: self.list_webhooks(workspace_id=workspace_id, limit=page_size, after=after, order=order)
        )

    async def create_webhook(
        self,
        *,
        url: str,
        events: list[RunEvent],
        description: str | None = None,
        idempotency_key: str | None = None,
        workspace_id: Id | None = None,
    ) -> CreatedWebhookBody:
        """Create a webhook.

        Runs that end from now on are told of to its URL, signed as Standard Webhooks has it, at least once and in no
        promised order.
        """
        return await self._call(
            CREATE_WEBHOOK,
            CreatedWebhookBody,
            {},
            {},
            {"url": url, "events": events, "description": description},
            idempotency_key=idempotency_key,
            workspace_id=workspace_id,
        )

    async def get_webhook(self, webhook_id: Id, *, workspace_id: Id | None = None) -> WebhookBody:
        """Get a webhook."""
        return await self._call(GET_WEBHOOK, WebhookBody, {"webhook_id": webhook_id}, {}, workspace_id=workspace_id)

    async def change_webhook(
        self,
        webhook_id: Id,
        *,
        url: str | UnsetType = UNSET,
        events: list[RunEvent] | UnsetType = UNSET,
        description: str | UnsetType | None = UNSET,
        enabled: bool | UnsetType = UNSET,
        if_match: IfMatch | None = None,
        idempotency_key: str | None = None,
        workspace_id: Id | None = None,
    ) -> WebhookBody:
        """Change a webhook.

        What is left out stays as it is. Deliveries that wait go to the new URL. Those that fall due while it is
        disabled have failed.
        """
        return await self._call(
            CHANGE_WEBHOOK,
            WebhookBody,
            {"webhook_id": webhook_id},
            {},
            {"url": url, "events": events, "description": description, "enabled": enabled},
            if_match=if_match,
            idempotency_key=idempotency_key,
            workspace_id=workspace_id,
        )

    async def delete_webhook(
        self, webhook_id: Id, *, if_match: IfMatch | None = None, workspace_id: Id | None = None
    ) -> None:
        """Delete a webhook.

        With its deliveries. One that is on its way may still arrive.
        """
        return await self._call(
            DELETE_WEBHOOK, type(None), {"webhook_id": webhook_id}, {}, if_match=if_match, workspace_id=workspace_id
        )

    async def rotate_webhook_secret(
        self,
        webhook_id: Id,
        *,
        overlap_seconds: int = 86400,
        if_match: IfMatch | None = None,
        idempotency_key: str | None = None,
        workspace_id: Id | None = None,
    ) -> CreatedWebhookBody:
        """Give a webhook a new signing secret.

        During the overlap every delivery carries a signature by each of the two, so that a receiver can change over at
        its own time. The secret before those two, if it was still used, ends now.
        """
        return await self._call(
            ROTATE_WEBHOOK_SECRET,
            CreatedWebhookBody,
            {"webhook_id": webhook_id},
            {},
            {"overlap_seconds": overlap_seconds},
            if_match=if_match,
            idempotency_key=idempotency_key,
            workspace_id=workspace_id,
        )

    async def test_webhook(
        self, webhook_id: Id, *, idempotency_key: str | None = None, workspace_id: Id | None = None
    ) -> WebhookDeliveryBody:
        """Send a test to a webhook.

        An event of the type webhook.test, by the same way as every other.
        """
        return await self._call(
            TEST_WEBHOOK,
            WebhookDeliveryBody,
            {"webhook_id": webhook_id},
            {},
            idempotency_key=idempotency_key,
            workspace_id=workspace_id,
        )

    async def list_webhook_deliveries(
        self,
        webhook_id: Id,
        *,
        state: Literal["pending", "delivered", "failed"] | None = None,
        limit: int | None = None,
        after: Id | None = None,
        order: Literal["asc", "desc"] | None = None,
        workspace_id: Id | None = None,
    ) -> WebhookDeliveryPage:
        """List the deliveries of a webhook.

        One page per call, newest first unless order=asc. They are kept for a month unless set otherwise.
        """
        return await self._call(
            LIST_WEBHOOK_DELIVERIES,
            WebhookDeliveryPage,
            {"webhook_id": webhook_id},
            {"state": state, "limit": limit, "after": after, "order": order},
            workspace_id=workspace_id,
        )

    def iter_webhook_deliveries(
        self,
        webhook_id: Id,
        *,
        state: Literal["pending", "delivered", "failed"] | None = None,
        order: Literal["asc", "desc"] | None = None,
        page_size: int | None = None,
        workspace_id: Id | None = None,
    ) -> AsyncIterator[WebhookDeliveryBody]:
        """All that `list_webhook_deliveries` lists, each page fetched when it is needed."""
        return walk_async(
            lambda after: self.list_webhook_deliveries(
                webhook_id, state=state, workspace_id=workspace_id, limit=page_size, after=after, order=order
            )
        )

    async def redeliver_webhook(
        self, webhook_id: Id, delivery_id: Id, *, idempotency_key: str | None = None, workspace_id: Id | None = None
    ) -> WebhookDeliveryBody:
        """Send a delivery again.

        The same bytes under the same webhook-id, whatever became of it before; at once, and by the whole schedule if
        that fails.
        """
        return await self._call(
            REDELIVER_WEBHOOK,
            WebhookDeliveryBody,
            {"webhook_id": webhook_id, "delivery_id": delivery_id},
            {},
            idempotency_key=idempotency_key,
            workspace_id=workspace_id,
        )

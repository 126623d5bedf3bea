"""Jobs of other systems that a workspace trusts: a CI job exchanges the token that its system signs for it for a key of
some minutes, which may push versions of one skill. So nobody has to store a secret there."""

from uuid import UUID

from quarterdeck.auth.access import Access, lock_credentials, visible_record, visible_workspace
from quarterdeck.changes.audit_log import record_actor_change
from quarterdeck.changes.model import Actor, Change, ObjectType
from quarterdeck.changes.perform import Changes, Made
from quarterdeck.core import errors, secrets
from quarterdeck.core.actors import CredentialKind, Permission, Principal
from quarterdeck.core.call import Answer, Call
from quarterdeck.core.ids import new_id
from quarterdeck.core.operation import ErrorCase, operation
from quarterdeck.core.pages import PageRequest
from quarterdeck.core.settings import KeySettings
from quarterdeck.db.database import Connection, Database
from quarterdeck.openid.issuers import Issuers
from quarterdeck.skills import service as skills
from quarterdeck.skills.model import SkillBody
from quarterdeck.trusted_jobs import rules, store
from quarterdeck.trusted_jobs.model import (
    CreateTrustedJobBody,
    ExchangeJobTokenBody,
    JobKeyBody,
    TrustedJobBody,
    TrustedJobPage,
)

_NOUN = "trusted job"


@operation(
    summary="Trust a job with a skill",
    description="Such as a CI job: one whose token is signed by the issuer and has the claims may push versions of the "
    "skill, by `exchange_job_token`. It acts for the caller, and no longer than the caller is a member.",
    permission=Permission.KEY_MANAGE,
    reads=True,
    created=True,
    success="The trusted job.",
    idempotent=True,
    refusals=(
        ErrorCase(
            "exceeds_caller",
            errors.exceeds_caller("A key that expires cannot trust a job, which would outlive it."),
            "The calling key expires, or may not push skills itself.",
            "Use a key that does not expire and has `skill.manage` and `workspace.read`, or sign in.",
        ),
    ),
)
async def create_trusted_job(
    changes: Changes, issuers: Issuers, call: Call[CreateTrustedJobBody], skill_id: UUID
) -> Answer[TrustedJobBody]:
    async def effect(
        connection: Connection, principal: Principal, skill: SkillBody, body: CreateTrustedJobBody
    ) -> Made:
        rules.check_caller(principal)
        rules.check_claims(body.claims)
        issuers.check(body.issuer)
        job_id = new_id()
        await store.add(connection, job_id, principal.workspace_id, skill.id, principal.user_id, body)
        # None: the skill was deleted just now.
        made = errors.existing(await store.get(connection, principal.workspace_id, job_id), "skill")
        detail = {"skill_id": str(skill.id), "skill_name": skill.name, "issuer": body.issuer, "claims": body.claims}
        return Made.plain(made, job_id, body.name, True, **detail)

    lookup = visible_record(call, "skill", skills.get_stored, skill_id)
    return await changes.perform(call, lookup, ObjectType.TRUSTED_JOB, effect)


@operation(
    summary="List the trusted jobs of a workspace",
    description="One page per call, newest first unless order=asc.",
    permission=Permission.WORKSPACE_READ,
    success="One page. next_cursor is null on the last page.",
    cursor_must_exist=False,
)
async def list_trusted_jobs(access: Access, call: Call[None], request: PageRequest) -> TrustedJobPage:
    return await access.page(call, visible_workspace(call), TrustedJobPage, request, store.page)


@operation(
    summary="Trust a job no longer",
    description="Its keys end at once.",
    permission=Permission.KEY_MANAGE,
    success="The job is not trusted any more.",
)
async def delete_trusted_job(changes: Changes, call: Call[None], trusted_job_id: UUID) -> Answer[None]:
    async def effect(connection: Connection, principal: Principal, job: TrustedJobBody, _: None) -> Made:
        await lock_credentials(connection, [job.id])
        changed = await store.delete(connection, principal.workspace_id, job.id)
        return Made.plain(None, job.id, job.name, changed)

    lookup = visible_record(call, _NOUN, store.get, trusted_job_id)
    return await changes.perform(call, lookup, ObjectType.TRUSTED_JOB, effect)


@operation(
    summary="Exchange the token of a trusted job",
    description="For a key that may push versions of the skill of the job, and expires in ten minutes by default. The "
    "audience of the token has to be the ID of the trusted job.",
    permission=None,
    public=True,
    created=True,
    success="The key.",
    refusals=(
        ErrorCase(
            "unknown_job",
            errors.not_found(_NOUN),
            "The ID is unknown, or the person who trusted the job has left or may not push skills any more.",
            "Let a member trust the job again.",
        ),
        ErrorCase(
            "wrong_token",
            errors.wrong_token("The token has expired."),
            "The token is not by the issuer, has expired, is for another audience, or has other claims.",
            "Compare the claims of the token with those of the trusted job.",
        ),
        ErrorCase(
            "issuer_unavailable",
            errors.unavailable(),
            "The keys of the issuer cannot be fetched at the moment.",
            "Try again shortly.",
        ),
    ),
)
async def exchange_job_token(
    database: Database, issuers: Issuers, keys: KeySettings, call: Call[ExchangeJobTokenBody]
) -> JobKeyBody:
    body = call.read_body()
    job_id = body.trusted_job_id
    job = errors.existing(await database.read(store.in_force, job_id), _NOUN)
    claims = await issuers.verify(job.issuer, body.token, str(job_id), call.origin.address)
    unfit = rules.unfit_claim(job.claims, claims)
    if unfit is not None:
        raise errors.wrong_token(f"The claim {unfit} of the token is not what the trusted job has.")
    secret = secrets.mint(CredentialKind.JOB_KEY, keys.environment)

    async def issue(connection: Connection) -> JobKeyBody:
        expires_at = await store.add_key(connection, job_id, secret, keys.job_seconds)
        found = {name: str(claims[name]) for name in job.claims}
        change = Change("exchange_job_token", ObjectType.TRUSTED_JOB, job_id, found, job.name)
        by = Actor(job.created_by, trusted_job_id=job_id)
        await record_actor_change(connection, job.workspace_id, by, call.origin, change)
        return JobKeyBody(secret.text, errors.existing(expires_at, _NOUN), job.workspace_id, job.skill_id)

    return await database.transaction(issue, repeatable=False)


async def end_jobs_of(connection: Connection, workspace_id: UUID, user_id: UUID) -> list[Change]:
    """Those that act for a person who leaves. Returns the changes for the audit log."""
    jobs = await store.of_user(connection, workspace_id, user_id)
    await lock_credentials(connection, [job.id for job in jobs])
    return [
        Change("delete_trusted_job", ObjectType.TRUSTED_JOB, job.id, {}, job.name)
        for job in jobs
        if await store.delete(connection, workspace_id, job.id)
    ]

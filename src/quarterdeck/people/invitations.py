"""Links that let a person into a workspace, and links of the operator that let a person into their account again."""

from uuid import UUID

from msgspec import UNSET
from msgspec.structs import asdict, replace

from quarterdeck.auth.access import Access, own_person, visible_record, visible_workspace
from quarterdeck.changes.audit_log import record_operator_change, record_person_change
from quarterdeck.changes.model import Change, ObjectType
from quarterdeck.changes.perform import Changes, Made
from quarterdeck.core import errors, secrets
from quarterdeck.core.actors import Origin, Permission, Principal, Role
from quarterdeck.core.call import Answer, Call
from quarterdeck.core.operation import ErrorCase, operation
from quarterdeck.core.pages import PageRequest
from quarterdeck.core.secrets import INVITATION
from quarterdeck.core.settings import KeySettings, SignInSettings
from quarterdeck.db.database import Connection, Database
from quarterdeck.people import members, rules, store
from quarterdeck.people.model import (
    AcceptInvitationBody,
    CreatedInvitationBody,
    CreateInvitationBody,
    DeviceKind,
    InvitationBody,
    InvitationPage,
    InvitationSummaryBody,
    InvitationTokenBody,
    ProfileBody,
)
from quarterdeck.people.profiles import end_all_but, profile_of
from quarterdeck.people.sign_in import Join, SignedIn, SignIns
from quarterdeck.people.store import Invitation, UserAccount

_DAY_SECONDS = 24 * 3600
UNKNOWN = ErrorCase(
    "unknown_invitation",
    errors.not_found("invitation"),
    "The token is malformed or unknown, or the invitation was accepted, was withdrawn or has expired, or whoever made "
    "it may not invite any more.",
    "Ask for a new invitation.",
)
HAS_ACCOUNT = ErrorCase(
    "has_account",
    errors.conflict(errors.HAS_ACCOUNT),
    "The email address of the invitation belongs to an account.",
    "Sign in with it, then use `join_workspace`.",
)
_MEMBER_ALREADY = ErrorCase(
    "member_already",
    errors.conflict(errors.MEMBER_ALREADY),
    "The person is a member of the workspace already.",
    "Nothing: an admin can change the role.",
)


@operation(
    summary="List invitations",
    description="One page per call, newest first unless order=asc. Includes those that were accepted or withdrawn.",
    permission=Permission.WORKSPACE_READ,
    success="One page. next_cursor is null on the last page.",
)
async def list_invitations(access: Access, call: Call[None], request: PageRequest) -> InvitationPage:
    return await access.page(call, visible_workspace(call), InvitationPage, request, store.invitations)


@operation(
    summary="Invite a person",
    description="Returns a token for a link. Quarterdeck sends no email: give the link to the person yourself.",
    permission=Permission.MEMBER_MANAGE,
    # As has every role that can be given.
    reads=True,
    created=True,
    success="The invitation, with its token, which is shown only once.",
    idempotent=True,
    refusals=(
        ErrorCase(
            "owners_only",
            rules.owners_only(),
            "The person would become an owner, and the caller is none.",
            "Ask an owner, or invite with another role.",
        ),
        members.BEYOND_KEY,
        _MEMBER_ALREADY,
    ),
)
async def create_invitation(
    changes: Changes, keys: KeySettings, settings: SignInSettings, call: Call[CreateInvitationBody]
) -> Answer[CreatedInvitationBody]:
    async def effect(
        connection: Connection, principal: Principal, workspace_id: UUID, body: CreateInvitationBody
    ) -> Made:
        await members.check_may_give(connection, principal, body.role)
        found = await store.member_by_email(connection, workspace_id, body.email)
        if found is not None and found.ended_at is None:
            raise errors.conflict(errors.MEMBER_ALREADY)
        created = await invite(connection, keys, settings, workspace_id, body, principal.user_id)
        detail = {"email": body.email, "role": body.role}
        kept = replace(created, token=UNSET)
        return Made(shown=created, kept=kept, object_id=created.id, object_name=body.email, detail=detail)

    return await changes.perform(call, visible_workspace(call), ObjectType.INVITATION, effect)


@operation(
    summary="Withdraw an invitation",
    description="Its link stops working. An invitation that was accepted stays in the list.",
    permission=Permission.MEMBER_MANAGE,
    success="The invitation was withdrawn.",
    refusals=(
        ErrorCase(
            "not_open",
            errors.conflict(errors.INVITATION_ENDED),
            "The invitation was accepted or withdrawn before.",
            "To undo an accepted one, remove the member.",
        ),
    ),
)
async def withdraw_invitation(changes: Changes, call: Call[None], invitation_id: UUID) -> Answer[None]:
    async def effect(connection: Connection, principal: Principal, found: InvitationBody, _: None) -> Made:
        if not await store.withdraw_invitation(connection, principal.workspace_id, found.id):
            raise errors.conflict(errors.INVITATION_ENDED)
        return Made.plain(None, found.id, found.email, True, email=found.email, role=found.role)

    lookup = visible_record(call, "invitation", store.invitation, invitation_id)
    return await changes.perform(call, lookup, ObjectType.INVITATION, effect)


@operation(
    summary="Look at an invitation",
    description="For the page that the link opens.",
    permission=None,
    public=True,
    success="What the invitation is for.",
    refusals=(UNKNOWN,),
)
async def look_up_invitation(
    database: Database, sign_ins: SignIns, call: Call[InvitationTokenBody]
) -> InvitationSummaryBody:
    body = call.read_body()
    await sign_ins.tries.count(call.origin.address)

    async def look(connection: Connection) -> InvitationSummaryBody:
        invitation = await _open(connection, body.token)
        account = await _account_of(connection, invitation)
        return InvitationSummaryBody(
            invitation.email,
            invitation.workspace_name,
            invitation.role,
            invitation.invited_by,
            has_account=invitation.workspace_id is not None and account is not None and account.is_taken,
            may_change_email=invitation.workspace_id is None,
        )

    return await database.read(look)


async def accept(database: Database, sign_ins: SignIns, body: AcceptInvitationBody, origin: Origin) -> SignedIn:
    """For people without an account, and for links of the operator. `http.py` has the operation."""
    await sign_ins.tries.count(origin.address)
    await database.read(_open, body.token)
    password_hash = await sign_ins.passwords.hash(origin.address, body.password)

    async def accept_it(connection: Connection) -> SignedIn:
        invitation = await _locked(connection, body.token)
        if invitation.workspace_id is None:
            account = await _recover(connection, invitation, body)
        else:
            account = await _enter(connection, invitation, invitation.workspace_id)
        await store.accept_invitation(connection, invitation.id, account.user_id)
        await store.set_password(connection, account.user_id, password_hash)
        if body.display_name is not None:
            await store.name_account(connection, account.user_id, body.display_name)
        account = errors.existing(await store.account(connection, account.user_id), "invitation")
        signed_in = await sign_ins.add_device(connection, account, DeviceKind.BROWSER, body.device_name, origin)
        await _record_acceptance(connection, invitation, signed_in, origin)
        return signed_in

    return await database.transaction(accept_it, repeatable=False)


@operation(
    summary="Join a workspace",
    description="Accepts an invitation for the person who has signed in, whatever the email address of the invitation.",
    permission=None,
    personal=True,
    success="The workspace and the role of the person there.",
    refusals=(UNKNOWN, _MEMBER_ALREADY),
)
async def join_workspace(changes: Changes, call: Call[InvitationTokenBody]) -> Answer[ProfileBody]:
    async def effect(connection: Connection, principal: Principal, user_id: UUID, body: InvitationTokenBody) -> Made:
        email = (await profile_of(connection, principal)).user.primary_email
        if not await _join(connection, body.token, user_id, email, principal.device_id, call.origin):
            raise errors.conflict(errors.MEMBER_ALREADY)
        # The audit entry belongs to the workspace that was joined, not to that of the request.
        return Made.plain(await profile_of(connection, principal), user_id, None, False)

    return await changes.perform(call, own_person("invitation"), ObjectType.MEMBER, effect)


def joining(token: str, origin: Origin) -> Join:
    """For a person who is signing in, perhaps a former member of the only workspace. A member stays as they are."""

    async def join(connection: Connection, account: UserAccount) -> None:
        await _join(connection, token, account.user_id, account.email, None, origin)

    return join


async def _join(
    connection: Connection, token: str, user_id: UUID, email: str | None, device_id: UUID | None, origin: Origin
) -> bool:
    """False if the person is a member already."""
    invitation = await _locked(connection, token)
    if invitation.workspace_id is None or invitation.role is None:
        raise errors.not_found("invitation")
    if not await members.join(connection, invitation.workspace_id, user_id, invitation.role):
        return False
    await store.accept_invitation(connection, invitation.id, user_id)
    detail = {"email": invitation.email, "role": invitation.role}
    change = Change("join_workspace", ObjectType.MEMBER, user_id, detail, email)
    await record_person_change(connection, invitation.workspace_id, user_id, device_id, origin, change)
    return True


# --- operator ---


async def invite(
    connection: Connection,
    keys: KeySettings,
    settings: SignInSettings,
    workspace_id: UUID,
    body: CreateInvitationBody,
    created_by: UUID | None,
) -> CreatedInvitationBody:
    secret = secrets.mint(INVITATION, keys.environment)
    life_seconds = settings.invitation_days * _DAY_SECONDS
    added = await store.add_invitation(
        connection, workspace_id, body.email, body.role, secret, created_by, life_seconds
    )
    return CreatedInvitationBody(**asdict(added), token=secret.text)


async def invite_by_operator(
    connection: Connection, keys: KeySettings, settings: SignInSettings, workspace_id: UUID, email: str, role: Role
) -> CreatedInvitationBody:
    async with connection.transaction():
        await members.lock_workspace(connection, workspace_id)
        body = CreateInvitationBody(email, role)
        created = await invite(connection, keys, settings, workspace_id, body, None)
        detail = {"email": email, "role": role}
        change = Change("create_invitation", ObjectType.INVITATION, created.id, detail, email)
        await record_operator_change(connection, workspace_id, change)
        return created


async def account_link(connection: Connection, keys: KeySettings, settings: SignInSettings, email: str) -> str:
    """The token of a link with which a person chooses a new password."""
    async with connection.transaction():
        account = await store.lock_account_by_email(connection, email)
        if account is None:
            raise errors.invalid(f"There is no user with the email address {email}.")
        secret = secrets.mint(INVITATION, keys.environment)
        life_seconds = settings.invitation_days * _DAY_SECONDS
        await store.add_account_link(connection, account.user_id, email, secret, life_seconds)
        for workspace_id in await store.workspaces_of_user(connection, account.user_id):
            change = Change("create_account_link", ObjectType.MEMBER, account.user_id, {"email": email}, email)
            await record_operator_change(connection, workspace_id, change)
        return secret.text


async def _open(connection: Connection, token: str, *, lock: bool = False) -> Invitation:
    secret_hash = secrets.hash_of(INVITATION, token)
    found = None if secret_hash is None else await store.open_invitation(connection, secret_hash, lock=lock)
    if found is None or not found.is_authorized:
        raise errors.not_found("invitation")
    return found


async def _locked(connection: Connection, token: str) -> Invitation:
    """Locks what the invitation opens and checks it again: whoever made it may have left the workspace during the wait,
    and a new password ends the other links into an account."""
    invitation = await _open(connection, token)
    if invitation.workspace_id is not None:
        await store.lock_workspace(connection, invitation.workspace_id)
    elif invitation.user_id is not None:
        await store.lock_account(connection, invitation.user_id)
    return await _open(connection, token, lock=True)


async def _account_of(connection: Connection, invitation: Invitation) -> UserAccount | None:
    if invitation.user_id is not None:
        return await store.account(connection, invitation.user_id)
    return await store.account_by_email(connection, invitation.email)


async def _enter(connection: Connection, invitation: Invitation, workspace_id: UUID) -> UserAccount:
    """A link must never open an account that belongs to somebody: those who invite see the link, too."""
    user_id = await store.add_account(connection, invitation.email)
    account = await store.lock_account(connection, user_id)
    assert account is not None
    assert invitation.role is not None
    if account.is_taken:
        raise errors.conflict(errors.HAS_ACCOUNT)
    await members.join(connection, workspace_id, user_id, invitation.role)
    return account


async def _recover(connection: Connection, invitation: Invitation, body: AcceptInvitationBody) -> UserAccount:
    assert invitation.user_id is not None
    account = await store.account(connection, invitation.user_id)
    assert account is not None
    if body.email is not None and not await store.set_email(connection, account.user_id, body.email):
        raise errors.conflict(errors.EMAIL_TAKEN)
    # Whoever has found out the old password is out.
    await end_all_but(connection, account.user_id, None)
    return account


async def _record_acceptance(
    connection: Connection, invitation: Invitation, signed_in: SignedIn, origin: Origin
) -> None:
    user_id = signed_in.user.user_id
    if invitation.workspace_id is None:
        workspace_ids = await store.workspaces_of_user(connection, user_id)
    else:
        workspace_ids = [invitation.workspace_id]
    detail = {"email": invitation.email, "role": invitation.role}
    for workspace_id in workspace_ids:
        change = Change("accept_invitation", ObjectType.MEMBER, user_id, detail, signed_in.user.primary_email)
        await record_person_change(connection, workspace_id, user_id, signed_in.device_id, origin, change)

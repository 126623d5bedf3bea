"""The profile of a person and the devices that are signed in. Only those devices see them: keys get 404."""

from uuid import UUID

from quarterdeck.auth.access import Access, Hold, Lookup, lock_credentials, own_person
from quarterdeck.changes.audit_log import record_operator_change
from quarterdeck.changes.model import Change, ObjectType
from quarterdeck.changes.perform import Changes, Made
from quarterdeck.core import errors
from quarterdeck.core.actors import ActorBody, Principal
from quarterdeck.core.call import Answer, Call
from quarterdeck.core.operation import ErrorCase, operation
from quarterdeck.core.pages import PageRequest
from quarterdeck.db.database import Connection, Database
from quarterdeck.people import store
from quarterdeck.people.model import (
    ChangePasswordBody,
    ChangeProfileBody,
    DeviceBody,
    DevicePage,
    ProfileBody,
)
from quarterdeck.people.sign_in import SignIns

_WRONG_PASSWORD = ErrorCase(
    "wrong_password",
    errors.invalid(errors.WRONG_PASSWORD),
    "`current_password` is not the password of the account.",
    "Type it again. After many wrong passwords the answer is 429.",
)


@operation(
    summary="Get the profile",
    description="The person who has signed in, and their workspaces.",
    permission=None,
    personal=True,
    success="The profile.",
)
async def get_profile(access: Access, call: Call[None]) -> ProfileBody:
    async def show(connection: Connection, principal: Principal, _: UUID) -> ProfileBody:
        return await profile_of(connection, principal)

    return await access.read(call, own_person("profile"), show)


@operation(
    summary="Change the profile",
    description="The name is the same in all workspaces.",
    permission=None,
    personal=True,
    success="The profile.",
)
async def change_profile(changes: Changes, call: Call[ChangeProfileBody]) -> Answer[ProfileBody]:
    async def effect(connection: Connection, principal: Principal, user_id: UUID, body: ChangeProfileBody) -> Made:
        before = errors.existing(await store.lock_account(connection, user_id), "profile")
        await store.name_account(connection, user_id, body.display_name)
        profile = await profile_of(connection, principal)
        changed = body.display_name != before.display_name
        return Made.plain(profile, user_id, before.email, changed, display_name=body.display_name)

    return await changes.perform(call, own_person("profile"), ObjectType.MEMBER, effect)


@operation(
    summary="Change the password",
    description="Signs out all other devices of the person.",
    permission=None,
    personal=True,
    success="The profile.",
    refusals=(_WRONG_PASSWORD,),
)
async def change_password(
    database: Database,
    access: Access,
    changes: Changes,
    sign_ins: SignIns,
    call: Call[ChangePasswordBody],
) -> Answer[ProfileBody]:
    """The slow hashes are made before the transaction. It begins by checking that the old one is still stored."""
    user_id = await access.find(call, own_person("profile"))
    body = call.read_body()
    account = errors.existing(await database.read(store.account, user_id), "profile")
    address = call.origin.address
    if account.password_hash is not None:
        await sign_ins.tries.count(address, account.email)
        if not await sign_ins.passwords.is_right(address, body.current_password or "", account.password_hash):
            raise errors.invalid(errors.WRONG_PASSWORD)
        if account.email is not None:
            await sign_ins.tries.forget(account.email)
    new_hash = await sign_ins.passwords.hash(address, body.new_password)

    async def effect(connection: Connection, principal: Principal, _: UUID, __: ChangePasswordBody) -> Made:
        locked = errors.existing(await store.lock_account(connection, user_id), "profile")
        if locked.password_hash != account.password_hash:
            raise errors.invalid(errors.WRONG_PASSWORD)
        await store.set_password(connection, user_id, new_hash)
        others = [one for one in await store.valid_devices(connection, user_id) if one != principal.device_id]
        await end_devices(connection, user_id, others)
        return Made.plain(await profile_of(connection, principal), user_id, locked.email)

    return await changes.perform(call, own_person("profile"), ObjectType.MEMBER, effect, hold=Hold.EXCLUSIVE)


@operation(
    summary="List the devices of the person",
    description="Browsers and command lines that are signed in. One page per call, newest first unless order=asc.",
    permission=None,
    personal=True,
    success="One page. next_cursor is null on the last page.",
    cursor_must_exist=False,
)
async def list_devices(access: Access, call: Call[None], request: PageRequest) -> DevicePage:
    return await access.page(call, own_person("device"), DevicePage, request, store.devices)


@operation(
    summary="Sign out a device",
    description="Takes effect immediately, also for open event streams.",
    permission=None,
    personal=True,
    success="The device was signed out.",
)
async def end_device(changes: Changes, call: Call[None], device_id: UUID) -> Answer[None]:
    async def effect(connection: Connection, principal: Principal, device: DeviceBody, _: None) -> Made:
        await end_devices(connection, principal.user_id, [device.id])
        return Made.plain(None, device.id, device.name, True, prefix=device.prefix)

    return await changes.perform(call, _own_device(device_id), ObjectType.DEVICE, effect, hold=Hold.EXCLUSIVE)


@operation(
    summary="Sign out everywhere",
    description="Signs out all devices of the person, also the calling one. Keys and session tokens keep working.",
    permission=None,
    personal=True,
    success="All devices were signed out.",
)
async def end_all_devices(changes: Changes, call: Call[None]) -> Answer[None]:
    async def effect(connection: Connection, principal: Principal, user_id: UUID, _: None) -> Made:
        ended = await end_devices(connection, user_id, await store.valid_devices(connection, user_id))
        return Made.plain(None, user_id, None, True, devices=ended)

    return await changes.perform(call, own_person("device"), ObjectType.MEMBER, effect, hold=Hold.EXCLUSIVE)


async def end_devices(connection: Connection, user_id: UUID, ids: list[UUID]) -> int:
    await lock_credentials(connection, ids)
    return await store.end_devices(connection, user_id, ids)


def _own_device(device_id: UUID) -> Lookup[DeviceBody]:
    async def lookup(connection: Connection, principal: Principal) -> DeviceBody:
        user_id = await own_person("device")(connection, principal)
        return errors.existing(await store.device(connection, user_id, device_id), "device")

    return lookup


async def profile_of(connection: Connection, principal: Principal) -> ProfileBody:
    account = errors.existing(await store.account(connection, principal.user_id), "profile")
    assert principal.device_id is not None
    has_password = account.password_hash is not None
    return ProfileBody(
        account.actor, principal.device_id, has_password, await store.memberships(connection, principal.user_id)
    )


async def name_by_operator(connection: Connection, email: str, display_name: str | None) -> ActorBody:
    """A person has one name in all workspaces. The change is recorded in the audit log of each."""
    async with connection.transaction():
        account = await store.lock_account_by_email(connection, email)
        if account is None:
            raise errors.invalid(f"There is no user with the email address {email}.")
        if account.display_name != display_name:
            await store.name_account(connection, account.user_id, display_name)
            for workspace_id in await store.workspaces_of_user(connection, account.user_id):
                detail = {"display_name": display_name}
                change = Change("set_user", ObjectType.MEMBER, account.user_id, detail, display_name or email)
                await record_operator_change(connection, workspace_id, change)
        return ActorBody(account.user_id, display_name, account.email)

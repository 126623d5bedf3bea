"""`qd login`: the command line asks for a code, a person approves it in a browser where they have signed in, and the
command line collects the credential of a new device. As in RFC 8628."""

from uuid import UUID

from quarterdeck.auth.access import Access, lock_credentials, own_person
from quarterdeck.changes.model import ObjectType
from quarterdeck.changes.perform import Changes, Made
from quarterdeck.core import errors, secrets
from quarterdeck.core.actors import Principal
from quarterdeck.core.call import Answer, Call
from quarterdeck.core.operation import ErrorCase, operation
from quarterdeck.core.secrets import DEVICE_CODE
from quarterdeck.core.settings import KeySettings, SignInSettings
from quarterdeck.db.database import Connection, Database
from quarterdeck.people import rules, store
from quarterdeck.people.model import (
    AnswerDeviceCodeBody,
    AnsweredDeviceCodeBody,
    CreateDeviceCodeBody,
    DeviceCodeBody,
    DeviceCodeState,
    DeviceKind,
    PendingDeviceCodeBody,
    RedeemDeviceCodeBody,
    RedeemedDeviceCodeBody,
    UserCodeBody,
)
from quarterdeck.people.sign_in import SignIns

_INTERVAL_SECONDS = 2
_UNKNOWN = ErrorCase(
    "unknown_code",
    errors.not_found("code"),
    "The code is unknown, has expired, or was used, or the device that approved it was signed out.",
    "Start again with a new code.",
)


@operation(
    summary="Begin to sign in on the command line",
    description="Show `user_code` to the person, who enters it in the console at `#/devices/approve`, and call "
    "`redeem_device_code` until it is answered.",
    permission=None,
    public=True,
    created=True,
    success="The codes.",
)
async def create_device_code(
    database: Database, sign_ins: SignIns, keys: KeySettings, settings: SignInSettings, call: Call[CreateDeviceCodeBody]
) -> DeviceCodeBody:
    body = call.read_body()
    await sign_ins.tries.count(call.origin.address)
    secret = secrets.mint(DEVICE_CODE, keys.environment)

    async def add(connection: Connection) -> DeviceCodeBody:
        while True:
            user_code = rules.new_user_code()
            expires_at = await store.add_device_code(
                connection, user_code, secret, body.device_name, call.origin.address, settings.code_seconds
            )
            # None: the code is in use, once in many billions.
            if expires_at is not None:
                return DeviceCodeBody(secret.text, user_code, expires_at, _INTERVAL_SECONDS)

    return await database.transaction(add, repeatable=False)


@operation(
    summary="Finish signing in on the command line",
    description="The credential is shown once, after the person has approved the code.",
    permission=None,
    public=True,
    success="What has become of the code.",
    refusals=(_UNKNOWN,),
)
async def redeem_device_code(
    database: Database, sign_ins: SignIns, call: Call[RedeemDeviceCodeBody]
) -> RedeemedDeviceCodeBody:
    body = call.read_body()
    secret_hash = secrets.hash_of(DEVICE_CODE, body.device_code)
    if secret_hash is None:
        raise errors.not_found("code")

    async def redeem(connection: Connection) -> RedeemedDeviceCodeBody:
        code = errors.existing(await store.lock_code(connection, secret_hash), "code")
        if code.answered_by is None:
            return RedeemedDeviceCodeBody(DeviceCodeState.PENDING)
        await store.collect_code(connection, code.id)
        if not code.is_approved:
            return RedeemedDeviceCodeBody(DeviceCodeState.DENIED)
        # Who signs that device out does not let in what it has approved.
        await lock_credentials(connection, [code.answered_by])
        user_id = errors.existing(await store.user_of_device(connection, code.answered_by), "code")
        account = errors.existing(await store.lock_account(connection, user_id), "code")
        signed_in = await sign_ins.add_device(connection, account, DeviceKind.COMMAND_LINE, code.name, call.origin)
        return RedeemedDeviceCodeBody(DeviceCodeState.APPROVED, signed_in.secret, signed_in.user)

    return await database.transaction(redeem, repeatable=False)


@operation(
    summary="Look at a code of the command line",
    description="What asks to be signed in, and from where.",
    permission=None,
    personal=True,
    success="The code.",
    refusals=(_UNKNOWN,),
)
async def look_up_device_code(access: Access, sign_ins: SignIns, call: Call[UserCodeBody]) -> PendingDeviceCodeBody:
    await access.find(call, own_person("code"))
    body = call.read_body()
    await sign_ins.tries.count(call.origin.address)

    async def show(connection: Connection, _: Principal, __: UUID) -> PendingDeviceCodeBody:
        code = await store.unanswered_code(connection, rules.parse_user_code(body.user_code))
        found = errors.existing(code, "code")
        return PendingDeviceCodeBody(found.user_code, found.name, found.address, found.expires_at)

    return await access.read(call, own_person("code"), show)


@operation(
    summary="Answer a code of the command line",
    description="Approving signs in the device that shows this code, as the calling person, if the calling device is "
    "still signed in then.",
    permission=None,
    personal=True,
    success="The answer.",
    refusals=(_UNKNOWN,),
)
async def answer_device_code(changes: Changes, call: Call[AnswerDeviceCodeBody]) -> Answer[AnsweredDeviceCodeBody]:
    async def effect(connection: Connection, principal: Principal, _: UUID, body: AnswerDeviceCodeBody) -> Made:
        assert principal.device_id is not None
        user_code = rules.parse_user_code(body.user_code)
        code = errors.existing(await store.unanswered_code(connection, user_code, lock=True), "code")
        await store.answer_code(connection, code.id, principal.device_id, is_approved=body.approve)
        answered = AnsweredDeviceCodeBody(code.name, body.approve)
        return Made.plain(answered, code.id, code.name, True, approved=body.approve, address=code.address)

    return await changes.perform(call, own_person("code"), ObjectType.DEVICE, effect)

"""Signing in: with a password, by an invitation, at an OpenID provider (provider_sign_in.py), or on the command line
with a code that a browser approves.

Each way ends with a new device. None of them says whether an account exists.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime
from uuid import UUID

from msgspec import Struct

from quarterdeck.changes.audit_log import record_person_change
from quarterdeck.changes.model import Change, ObjectType
from quarterdeck.core import errors, secrets
from quarterdeck.core.actors import ActorBody, CredentialKind, Origin
from quarterdeck.core.settings import KeySettings, SignInSettings
from quarterdeck.db.database import Connection, Database
from quarterdeck.people import provider_store, store
from quarterdeck.people.model import DeviceKind, SignInBody
from quarterdeck.people.passwords import Passwords, Tries
from quarterdeck.people.store import UserAccount

_DAY_SECONDS = 24 * 3600


# Lets a person into a workspace, of whom nothing is locked yet.
Join = Callable[[Connection, UserAccount], Awaitable[None]]


class SignedIn(Struct, frozen=True):
    device_id: UUID
    secret: str
    expires_at: datetime
    user: ActorBody


class SignIns:
    """Creates devices."""

    def __init__(
        self, database: Database, passwords: Passwords, tries: Tries, keys: KeySettings, settings: SignInSettings
    ) -> None:
        self._database = database
        self._environment = keys.environment
        self._settings = settings
        self.passwords = passwords
        self.tries = tries

    async def with_password(self, body: SignInBody, origin: Origin, join: Join | None = None) -> SignedIn:
        await self.tries.count(origin.address, body.email)
        account = await self._database.read(store.account_by_email, body.email)
        stored = None if account is None else account.password_hash
        if not await self.passwords.is_right(origin.address, body.password, stored) or account is None:
            raise errors.wrong_sign_in()
        found = account

        async def sign_in(connection: Connection) -> SignedIn:
            if join is not None:
                await join(connection, found)
            locked = await store.lock_account(connection, found.user_id)
            # Changed since it was read.
            if locked is None or locked.password_hash != stored:
                raise errors.wrong_sign_in()
            return await self.add_device(connection, locked, DeviceKind.BROWSER, body.device_name, origin)

        signed_in = await self._database.transaction(sign_in, repeatable=False)
        await self.tries.forget(body.email)
        return signed_in

    async def add_device(
        self,
        connection: Connection,
        account: UserAccount,
        kind: DeviceKind,
        name: str,
        origin: Origin,
        **detail: str,
    ) -> SignedIn:
        """`detail`: more for the audit log."""
        memberships = await store.memberships(connection, account.user_id)
        if not memberships:
            raise errors.wrong_sign_in()
        secret = secrets.mint(CredentialKind.DEVICE, self._environment)
        life_seconds = self._settings.device_days * _DAY_SECONDS
        device_id, expires_at = await store.add_device(
            connection, account.user_id, kind, name, secret, origin.address, life_seconds
        )
        detail |= {"kind": kind, "prefix": secret.prefix}
        for membership in memberships:
            change = Change("sign_in", ObjectType.DEVICE, device_id, detail, name)
            await record_person_change(connection, membership.workspace_id, account.user_id, device_id, origin, change)
        return SignedIn(device_id, secret.text, expires_at, account.actor)


async def sweep_sign_ins(database: Database, settings: SignInSettings) -> int:
    async def sweep(connection: Connection) -> int:
        codes = await store.delete_expired(connection, settings.tries_window_seconds)
        return codes + await provider_store.delete_expired(connection)

    return await database.transaction(sweep, repeatable=True)

"""Asks providers again and again whether the people who signed in there may stay: docs/decisions/0115.

Any process may look after any session. No transaction is open while a provider is asked. A crash between the answer of
the provider and our write leaves the session unsure: its tokens may have been replaced.
"""

import asyncio
from collections.abc import Awaitable, Callable

from quarterdeck.auth.access import lock_credentials
from quarterdeck.changes.audit_log import record_operator_change
from quarterdeck.changes.model import Change, ObjectType
from quarterdeck.core.errors import ServiceError
from quarterdeck.core.logging import fields, log
from quarterdeck.core.secret_encryption import EncryptionKeyError, SecretCipher
from quarterdeck.core.settings import OidcSettings
from quarterdeck.db.database import Connection, Database
from quarterdeck.openid.model import Claims, OpenIdError, ProviderSettings
from quarterdeck.openid.providers import Providers
from quarterdeck.people import provider_store, store
from quarterdeck.people.profiles import end_devices
from quarterdeck.people.provider_memberships import end_memberships
from quarterdeck.people.provider_model import ProviderTokens
from quarterdeck.people.provider_sign_in import follow, open_tokens, seal_tokens
from quarterdeck.people.provider_store import ProviderSession

_AT_ONCE = 8
# A refresh makes no more requests, each with the timeout of the settings.
_MOST_REQUESTS = 5
_STOP_SECONDS = 10.0
# Between attempts to store an answer: it may have a refresh token that replaces ours.
_STORE_PAUSES_SECONDS = (1.0, 2.0, 4.0, 8.0)


class ProviderRefresher:
    def __init__(self, database: Database, providers: Providers, cipher: SecretCipher, settings: OidcSettings) -> None:
        self._database = database
        self._providers = providers
        self._cipher = cipher
        self._settings = settings
        # Longer than a refresh takes: no other process uses the same refresh token.
        self._lease_seconds = 2 * _MOST_REQUESTS * settings.request_seconds + 2 * sum(_STORE_PAUSES_SECONDS) + 60

    async def refresh(self) -> None:
        """To be called again and again."""
        # A provider that does not answer holds up no other one.
        await asyncio.gather(*map(self._refresh_all_of, await self._database.read(provider_store.due_providers)))
        while await self._database.transaction(_end_overdue, repeatable=True):
            pass

    async def _refresh_all_of(self, provider: str) -> None:
        while sessions := await self._database.transaction(
            provider_store.take_sessions, provider, _AT_ONCE, self._lease_seconds, repeatable=False
        ):
            running = [asyncio.create_task(self._refresh(session)) for session in sessions]
            try:
                # Unlike `gather`, it does not cancel them.
                await asyncio.wait(running)
            except asyncio.CancelledError:
                # The process stops. An answer that is not stored would sign the person out.
                await asyncio.wait(running, timeout=_STOP_SECONDS)
                raise
            answered = [task.result() for task in running]
            if not all(answered):
                return

    async def _refresh(self, session: ProviderSession) -> bool:
        """False: it is better to come back later."""
        try:
            return await self._refresh_it(session)
        except Exception as fault:
            log.warning("a sign-in at an OpenID provider could not be refreshed", exc_info=fault)
            return False

    async def _refresh_it(self, session: ProviderSession) -> bool:
        try:
            provider, tokens, claims = await self._ask(session)
        except OpenIdError as fault:
            extra = fields(provider=session.provider, user_id=session.identity.user_id, reason=fault.detail)
            if fault.code == "invalid_grant" and fault.refresh_token is None:
                log.info("an OpenID provider has ended a sign-in", extra=extra)
                return await self._store(self._refused, session)
            log.warning("an OpenID provider did not confirm a sign-in", extra=extra)
            await self._store(self._not_confirmed, session, fault)
            return not fault.is_temporary
        return await self._store(self._confirmed, session, provider, tokens, claims)

    async def _ask(self, session: ProviderSession) -> tuple[ProviderSettings, ProviderTokens, Claims]:
        """Raises OpenIdError."""
        provider = self._providers.get(session.provider)
        # A refresh token is for its issuer only.
        if provider is None or provider.settings.issuer != session.identity.issuer:
            raise OpenIdError("The settings do not describe this provider any more.", is_temporary=False)
        try:
            tokens = open_tokens(self._cipher, session.device_id, session.tokens)
        except EncryptionKeyError as fault:
            raise OpenIdError(str(fault), is_temporary=False) from None
        if tokens.refresh_token is None:
            raise OpenIdError("The provider has issued no refresh token.", is_temporary=False)
        claims = await provider.refresh(tokens.refresh_token, session.identity.subject)
        return provider.settings, ProviderTokens(claims.refresh_token, claims.id_token or tokens.id_token), claims

    async def _store(self, work: Callable[..., Awaitable[None]], *given: object) -> bool:
        """If it fails, the session is due again when its lease ends."""
        for pause_seconds in _STORE_PAUSES_SECONDS:
            try:
                await self._database.transaction(work, *given, repeatable=True)
            except ServiceError:
                await asyncio.sleep(pause_seconds)
            else:
                return True
        await self._database.transaction(work, *given, repeatable=True)
        return True

    async def _confirmed(
        self,
        connection: Connection,
        session: ProviderSession,
        provider: ProviderSettings,
        tokens: ProviderTokens,
        claims: Claims,
    ) -> None:
        identity = session.identity
        if await provider_store.lock_identity(connection, identity.issuer, identity.subject) is not None:
            await follow(connection, self._settings, provider, identity, claims)
        sealed = seal_tokens(self._cipher, session.device_id, tokens)
        seconds = self._settings.refresh_seconds, self._settings.grace_seconds
        await provider_store.renew_session(connection, session, sealed, *seconds, is_confirmed=True, is_unsure=False)

    async def _not_confirmed(self, connection: Connection, session: ProviderSession, fault: OpenIdError) -> None:
        """The same as before, until the grace has passed."""
        sealed, is_unsure = None, session.was_unsure or fault.code is None
        if fault.refresh_token is not None:
            before = open_tokens(self._cipher, session.device_id, session.tokens)
            tokens = ProviderTokens(fault.refresh_token, before.id_token)
            sealed, is_unsure = seal_tokens(self._cipher, session.device_id, tokens), False
        # Before the row is locked, as the sign-out of the device does.
        await lock_credentials(connection, [session.device_id])
        seconds = self._settings.refresh_seconds, self._settings.grace_seconds
        may_stay = await provider_store.renew_session(
            connection, session, sealed, *seconds, is_confirmed=False, is_unsure=is_unsure
        )
        if not may_stay:
            await provider_store.delete_session(connection, session.device_id)
            await _end_device(connection, session)

    async def _refused(self, connection: Connection, session: ProviderSession) -> None:
        await lock_credentials(connection, [session.device_id])
        if not await provider_store.drop_session(connection, session):
            # The person has signed out in the meantime.
            return
        await _end_device(connection, session)
        identity = session.identity
        await provider_store.lock_identity(connection, identity.issuer, identity.subject)
        if await provider_store.has_session(connection, identity.user_id, identity.issuer):
            return
        if session.was_unsure:
            # Perhaps the provider refuses the token only because it has sent us another one, which was lost.
            await provider_store.limit_members(connection, identity, self._settings.grace_seconds)
        else:
            await end_memberships(connection, identity)
        account = await store.account(connection, identity.user_id)
        is_known = await provider_store.has_session(connection, identity.user_id, None)
        if account is not None and account.password_hash is None and not is_known:
            # Command lines: a browser has approved them that was signed in here.
            await end_devices(connection, identity.user_id, await store.valid_devices(connection, identity.user_id))


async def _end_device(connection: Connection, session: ProviderSession) -> None:
    user_id = session.identity.user_id
    if not await end_devices(connection, user_id, [session.device_id]):
        return
    change = Change("end_device", ObjectType.DEVICE, session.device_id, {"provider": session.identity.issuer})
    for membership in await store.memberships(connection, user_id):
        await record_operator_change(connection, membership.workspace_id, change)


async def _end_overdue(connection: Connection) -> bool:
    identity = await provider_store.lock_overdue(connection)
    if identity is None:
        return False
    await end_memberships(connection, identity)
    return True

"""Signing in at an OpenID provider: the browser is sent there with a state and a cookie, and comes back with a code,
which is redeemed once. Ends with a new device, as the other ways of signing in.

An account is never found by an email address: its owner may have chosen the address at the provider.
"""

import hashlib
import secrets
from collections.abc import Mapping
from uuid import UUID

import msgspec
from msgspec import Struct

from quarterdeck.auth.access import lock_credentials
from quarterdeck.changes.audit_log import record_person_change
from quarterdeck.changes.model import Change, ObjectType
from quarterdeck.core import errors
from quarterdeck.core.actors import Origin
from quarterdeck.core.ids import new_id
from quarterdeck.core.logging import fields, log
from quarterdeck.core.secret_encryption import EncryptionKeyError, SecretCipher
from quarterdeck.core.settings import OidcSettings
from quarterdeck.core.text_types import Email, Line, check_email
from quarterdeck.db.database import Connection, Database
from quarterdeck.openid.model import Claims, OpenIdError, ProviderSettings
from quarterdeck.openid.providers import Providers
from quarterdeck.people import provider_store, rules, store
from quarterdeck.people.model import DeviceKind
from quarterdeck.people.profiles import end_devices
from quarterdeck.people.provider_memberships import set_memberships
from quarterdeck.people.provider_model import (
    BeginSignInBody,
    EndedSession,
    ProblemName,
    ProviderBody,
    ProvidersBody,
    ProviderTokens,
    SignInAttempt,
    SignInProblem,
)
from quarterdeck.people.provider_store import Identity
from quarterdeck.people.sign_in import SignedIn, SignIns

_DAY_SECONDS = 24 * 3600


class Begun(Struct, frozen=True):
    authorization_url: str
    # For the cookie.
    browser: str


class Finished(Struct, frozen=True):
    attempt: SignInAttempt
    signed_in: SignedIn


class ProviderSignIns:
    def __init__(
        self, database: Database, providers: Providers, cipher: SecretCipher, sign_ins: SignIns, settings: OidcSettings
    ) -> None:
        self._database = database
        self._providers = providers
        self._cipher = cipher
        self._sign_ins = sign_ins
        self._settings = settings

    def list(self) -> ProvidersBody:
        return ProvidersBody([ProviderBody(one.name, one.title) for one in self._providers.described.values()])

    async def begin(self, body: BeginSignInBody, origin: str, address: str | None, device_id: UUID | None) -> Begun:
        """`origin`: of the console. `device_id`: of a person who connects an account at the provider."""
        provider = errors.existing(self._providers.get(body.provider), "provider")
        await self._sign_ins.tries.count(address)
        state, browser, nonce = (secrets.token_urlsafe(32) for _ in range(3))
        verifier, redirect_uri = secrets.token_urlsafe(48), f"{origin}/signed-in/{body.provider}"
        try:
            url = await provider.authorization_url(redirect_uri, state, nonce, verifier)
        except OpenIdError as fault:
            _report(body.provider, fault)
            raise errors.unavailable("The provider cannot be asked. Try again later.") from None
        attempt = SignInAttempt(
            body.provider, redirect_uri, nonce, verifier, body.return_to, body.device_name, device_id
        )
        await self._database.transaction(
            provider_store.add_attempt, _hash(state), _hash(browser), attempt, repeatable=False
        )
        return Begun(url, browser)

    async def finish(self, name: str, browser: str, answer: Mapping[str, str], origin: Origin) -> Finished:
        """`answer`: the parameters of the callback. Raises SignInProblem."""
        hashes = _hash(answer.get("state", "")), _hash(browser)
        attempt = await self._database.transaction(provider_store.take_attempt, *hashes, name, repeatable=False)
        provider = self._providers.get(name)
        if attempt is None or provider is None:
            raise SignInProblem(ProblemName.EXPIRED)
        code = answer.get("code")
        if "error" in answer or code is None:
            raise SignInProblem(ProblemName.REFUSED)
        try:
            claims = await provider.redeem(
                code, attempt.code_verifier, attempt.redirect_uri, attempt.nonce, answer.get("iss")
            )
        except OpenIdError as fault:
            _report(name, fault)
            raise SignInProblem(ProblemName.UNAVAILABLE if fault.is_temporary else ProblemName.FAILED) from None
        signed_in = await self._database.transaction(
            self._sign_in, provider.settings, attempt, claims, origin, repeatable=False
        )
        if signed_in is None:
            raise SignInProblem(ProblemName.NO_WORKSPACE)
        return Finished(attempt, signed_in)

    async def end_session_url(self, session: EndedSession) -> str | None:
        """Where the browser is sent to be signed out at the provider."""
        provider = self._providers.get(session.provider)
        if provider is None or provider.settings.issuer != session.issuer:
            return None
        try:
            hint = open_tokens(self._cipher, session.device_id, session.tokens).id_token
            return await provider.end_session_url(hint, f"{session.origin}/")
        except (OpenIdError, EncryptionKeyError) as fault:
            _report(session.provider, fault)
            return None

    async def _sign_in(
        self,
        connection: Connection,
        provider: ProviderSettings,
        attempt: SignInAttempt,
        claims: Claims,
        origin: Origin,
    ) -> SignedIn | None:
        """None: the person is a member of no workspace. What the provider has taken away stays so."""
        known = await provider_store.lock_identity(connection, claims.issuer, claims.subject)
        if attempt.device_id is not None:
            identity = await _connect(connection, known, claims, attempt.device_id)
        else:
            identity = known or await _add_account(connection, claims)
        await follow(connection, self._settings, provider, identity, claims)
        memberships = await store.memberships(connection, identity.user_id)
        if not memberships:
            if known is None:
                raise SignInProblem(ProblemName.NO_WORKSPACE)
            return None
        account = errors.existing(await store.lock_account(connection, identity.user_id), "account")
        signed_in = await self._sign_ins.add_device(
            connection, account, DeviceKind.BROWSER, attempt.device_name, origin, provider=provider.name
        )
        if known is None and attempt.device_id is not None:
            change = Change(
                "connect_provider", ObjectType.MEMBER, identity.user_id, {"provider": provider.name}, account.email
            )
            for one in memberships:
                await record_person_change(
                    connection, one.workspace_id, identity.user_id, attempt.device_id, origin, change
                )
        settings, has_refresh_token = self._settings, claims.refresh_token is not None
        await provider_store.add_session(
            connection,
            signed_in.device_id,
            provider.name,
            identity,
            attempt.origin,
            seal_tokens(self._cipher, signed_in.device_id, ProviderTokens(claims.refresh_token, claims.id_token)),
            settings.refresh_seconds if has_refresh_token else settings.grace_seconds,
            has_refresh_token=has_refresh_token,
        )
        return signed_in


async def forget_session(connection: Connection, device_id: UUID) -> EndedSession | None:
    """Before the device is signed out. None: it was not signed in at a provider."""
    return await provider_store.delete_session(connection, device_id)


async def follow(
    connection: Connection, settings: OidcSettings, provider: ProviderSettings, identity: Identity, claims: Claims
) -> None:
    """Makes memberships and the address what the provider says."""
    given = rules.roles_given(provider, claims.groups)
    await set_memberships(connection, identity, given, settings.membership_days * _DAY_SECONDS)
    email, account = _verified_email(claims), await store.account(connection, identity.user_id)
    if email is not None and account is not None and account.password_hash is None and account.email != email:
        # The old one stays if another account has this address.
        await store.set_email(connection, identity.user_id, email)


async def _add_account(connection: Connection, claims: Claims) -> Identity:
    """If another process adds the same one now, the transaction is repeated and finds it."""
    email = _verified_email(claims)
    account = None if email is None else await store.lock_account_by_email(connection, email)
    if account is not None and account.is_taken:
        raise SignInProblem(ProblemName.EMAIL_TAKEN)
    identity = Identity(claims.issuer, claims.subject, new_id() if account is None else account.user_id)
    if account is None:
        await provider_store.add_user(connection, identity.user_id, email, _or_none(claims.name, Line))
    await provider_store.add_identity(connection, identity)
    return identity


async def _connect(connection: Connection, known: Identity | None, claims: Claims, device_id: UUID) -> Identity:
    """Ends the device: the browser gets a new one, which ends with the sign-in at the provider."""
    await lock_credentials(connection, [device_id])
    user_id = await store.user_of_device(connection, device_id)
    if user_id is None:
        raise SignInProblem(ProblemName.EXPIRED)
    if known is None:
        if await provider_store.has_identity(connection, user_id, claims.issuer):
            raise SignInProblem(ProblemName.CONNECTED_BEFORE)
        known = Identity(claims.issuer, claims.subject, user_id)
        await provider_store.add_identity(connection, known)
    elif known.user_id != user_id:
        raise SignInProblem(ProblemName.CONNECTED_BEFORE)
    await end_devices(connection, user_id, [device_id])
    return known


def seal_tokens(cipher: SecretCipher, device_id: UUID, tokens: ProviderTokens) -> bytes:
    return cipher.encrypt(device_id, msgspec.json.encode(tokens))


def open_tokens(cipher: SecretCipher, device_id: UUID, sealed: bytes) -> ProviderTokens:
    """Raises EncryptionKeyError."""
    return msgspec.json.decode(cipher.decrypt(device_id, sealed), type=ProviderTokens)


def _verified_email(claims: Claims) -> str | None:
    email = _or_none(claims.email, Email) if claims.is_email_verified else None
    try:
        check_email(email or "")
    except ValueError:
        return None
    return email


def _or_none(text: str | None, kind: object) -> str | None:
    try:
        return msgspec.convert(text, kind)  # type: ignore[no-any-return]
    except msgspec.ValidationError:
        return None


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _report(provider: str, fault: OpenIdError | EncryptionKeyError) -> None:
    reason = fault.detail if isinstance(fault, OpenIdError) else str(fault)
    log.warning("an OpenID provider could not be used", extra=fields(provider=provider, reason=reason))

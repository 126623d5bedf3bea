"""Hashes and checks passwords, and counts the tries of whatever can be guessed."""

import asyncio
from contextlib import AbstractAsyncContextManager
from functools import cached_property
from ipaddress import IPv6Address, ip_address, ip_network

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from quarterdeck.core import errors
from quarterdeck.core.settings import SignInSettings
from quarterdeck.core.slots import Slots, hold_slot
from quarterdeck.db.database import Connection, Database
from quarterdeck.people import store

# A hash takes 64 MiB and about 50 ms of a core.
_CONCURRENT_HASHES = 2
_WAIT_SECONDS = 10.0
# Whoever has one IPv6 address usually has a network of this size.
_IPV6_PREFIX = 64


class Passwords:
    def __init__(self) -> None:
        self._hasher = PasswordHasher()
        self._slots = Slots(_CONCURRENT_HASHES, 1)

    async def hash(self, address: str | None, password: str) -> str:
        async with self._slot(address):
            return await asyncio.to_thread(self._hasher.hash, password)

    async def is_right(self, address: str | None, password: str, stored: str | None) -> bool:
        """Takes as long for an account that does not exist or has no password: `stored` is None."""
        async with self._slot(address):
            return await asyncio.to_thread(self._is_right, password, stored)

    def _slot(self, address: str | None) -> AbstractAsyncContextManager[None]:
        owner = None if address is None else client_network(address)
        return hold_slot(self._slots, owner, _WAIT_SECONDS, "sign-ins")

    def _is_right(self, password: str, stored: str | None) -> bool:
        try:
            self._hasher.verify(stored or self._hash_of_nobody, password)
        except (VerificationError, InvalidHashError):
            return False
        return stored is not None

    @cached_property
    def _hash_of_nobody(self) -> str:
        return self._hasher.hash("nobody has this password")


class Tries:
    """Limits how often somebody can guess, by account and by address. The counts are stored before the guess is
    checked, and are shared by all processes."""

    def __init__(self, database: Database, settings: SignInSettings) -> None:
        self._database = database
        self._settings = settings

    async def count(self, address: str | None, account: str | None = None) -> None:
        """Raises if there were too many. What is counted says nothing about which accounts exist. `account`: its email
        address, or another name under which tries of a different kind are counted."""
        if address is not None:
            await self._count("address", client_network(address), self._settings.tries_per_address)
        if account is not None:
            await self._count("account", account, self._settings.tries_per_account)

    async def forget(self, account: str) -> None:
        """After a right password."""
        await self._database.transaction(store.forget_tries, _subject("account", account), repeatable=True)

    async def _count(self, kind: str, value: str, limit: int) -> None:
        window_seconds = self._settings.tries_window_seconds

        async def count(connection: Connection) -> tuple[int, float]:
            return await store.count_try(connection, _subject(kind, value), window_seconds)

        tries, left_seconds = await self._database.transaction(count, repeatable=False)
        if tries > limit:
            raise errors.too_many_tries(kind, max(1, round(left_seconds)))


def _subject(kind: str, value: str) -> str:
    return f"{kind}:{value}"


def client_network(address: str) -> str:
    """What counts as one client: an IPv4 address, or the network of an IPv6 address."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return address
    return str(found.ipv4_mapped or ip_network((found.packed, _IPV6_PREFIX), strict=False))

"""Decisions about members that need no database."""

import secrets
from collections.abc import Collection
from uuid import UUID

from quarterdeck.core import errors
from quarterdeck.core.actors import Principal, Role
from quarterdeck.core.errors import ServiceError
from quarterdeck.openid.model import ProviderSettings

# Without vowels and without characters that look alike, so that no code is a word or is misread.
_CODE_ALPHABET = "BCDFGHJKLMNPQRSTVWXZ"
_CODE_CHARACTERS = 8


def owners_only() -> ServiceError:
    return errors.exceeds_caller("Only an owner can give or take the role of an owner.")


def check_may_give(principal: Principal, role: Role, permissions: Collection[str]) -> None:
    """`permissions`: those of the role. A key that gives more than it has could let its holder in with more."""
    if role is Role.OWNER and principal.role is not Role.OWNER:
        raise owners_only()
    if not principal.permissions.issuperset(permissions):
        raise beyond_key()


def beyond_key() -> ServiceError:
    return errors.exceeds_caller("A key cannot give a role with permissions that the key does not have.")


def check_may_change(own: Role, before: Role) -> None:
    if before is Role.OWNER and own is not Role.OWNER:
        raise owners_only()


def new_user_code() -> str:
    """35 bits: guessing one of the codes that wait needs far more tries than an address has."""
    code = "".join(secrets.choice(_CODE_ALPHABET) for _ in range(_CODE_CHARACTERS))
    return f"{code[:4]}-{code[4:]}"


def parse_user_code(text: str) -> str:
    """As it is stored. People leave out the hyphen or type in lower case."""
    letters = "".join(character for character in text.upper() if character.isalpha())
    return f"{letters[:4]}-{letters[4:]}"


def roles_given(provider: ProviderSettings, groups: frozenset[str]) -> dict[UUID, Role]:
    """What a provider gives a person with these groups, by workspace: of several roles the highest."""
    given: dict[UUID, Role] = {}
    found = [(one.workspace_id, Role(one.role)) for one in provider.roles if one.group in groups]
    for workspace_id, role in [*found, *((one.workspace_id, Role(one.role)) for one in provider.everybody)]:
        before = given.get(workspace_id, role)
        given[workspace_id] = min(before, role, key=list(Role).index)
    return given

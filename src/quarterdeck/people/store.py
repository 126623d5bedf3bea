"""SQL for people: accounts, members, invitations, devices, and the codes and tries of signing in."""

from datetime import datetime
from uuid import UUID

from msgspec import Struct

from quarterdeck.core.actors import ActorBody, Role
from quarterdeck.core.ids import new_id
from quarterdeck.core.secrets import Secret
from quarterdeck.db.database import Connection
from quarterdeck.db.records import (
    Pages,
    Records,
    fetch_bool,
    fetch_column,
    fetch_record,
    fetch_records,
    fetch_value,
)
from quarterdeck.people.model import DeviceBody, DeviceKind, InvitationBody, MemberBody, MembershipBody


class UserAccount(Struct, frozen=True):
    user_id: UUID
    email: str | None
    display_name: str | None
    password_hash: str | None
    # Whether it belongs to somebody already: it has a password, somebody has signed in to it at a
    # provider, or it is or was a member of a workspace.
    is_taken: bool

    @property
    def actor(self) -> ActorBody:
        return ActorBody(self.user_id, self.display_name, self.email)


_ACCOUNT_COLUMNS = """
id AS user_id, email, display_name, password_hash,
password_hash IS NOT NULL OR EXISTS (SELECT FROM members m WHERE m.user_id = users.id)
    OR EXISTS (SELECT FROM identities i WHERE i.user_id = users.id) AS is_taken
"""
_ACCOUNT = f"SELECT {_ACCOUNT_COLUMNS} FROM users WHERE id = %s"  # noqa: S608  built from constants
_ACCOUNT_BY_EMAIL = f"SELECT {_ACCOUNT_COLUMNS} FROM users WHERE lower(email) = lower(%s)"  # noqa: S608
_LOCK_ACCOUNT = f"{_ACCOUNT} FOR NO KEY UPDATE"
_LOCK_ACCOUNT_BY_EMAIL = f"{_ACCOUNT_BY_EMAIL} FOR NO KEY UPDATE"
_ADD_ACCOUNT = """
INSERT INTO users (id, email) VALUES (%s, %s)
ON CONFLICT (lower(email)) DO UPDATE SET email = users.email
RETURNING id
"""
_NAME_ACCOUNT = "UPDATE users SET display_name = %s WHERE id = %s"
_SET_EMAIL = """
UPDATE users SET email = %(email)s WHERE id = %(id)s
AND NOT EXISTS (SELECT FROM users other WHERE lower(other.email) = lower(%(email)s) AND other.id <> %(id)s)
"""
_SET_PASSWORD = "UPDATE users SET password_hash = %s WHERE id = %s"
_END_LINKS = """
UPDATE invitations SET withdrawn_at = clock_timestamp()
WHERE user_id = %s AND accepted_at IS NULL AND withdrawn_at IS NULL
"""


async def account(connection: Connection, user_id: UUID) -> UserAccount | None:
    return await fetch_record(connection, UserAccount, _ACCOUNT, (user_id,))


async def account_by_email(connection: Connection, email: str) -> UserAccount | None:
    return await fetch_record(connection, UserAccount, _ACCOUNT_BY_EMAIL, (email,))


async def lock_account(connection: Connection, user_id: UUID) -> UserAccount | None:
    return await fetch_record(connection, UserAccount, _LOCK_ACCOUNT, (user_id,))


async def lock_account_by_email(connection: Connection, email: str) -> UserAccount | None:
    return await fetch_record(connection, UserAccount, _LOCK_ACCOUNT_BY_EMAIL, (email,))


async def add_account(connection: Connection, email: str) -> UUID:
    """The id of the new or existing account with this address."""
    found = await fetch_value(connection, _ADD_ACCOUNT, (new_id(), email))
    assert isinstance(found, UUID)
    return found


async def name_account(connection: Connection, user_id: UUID, display_name: str | None) -> None:
    await connection.execute(_NAME_ACCOUNT, (display_name, user_id))


async def set_email(connection: Connection, user_id: UUID, email: str) -> bool:
    """False if another account has this address."""
    return (await connection.execute(_SET_EMAIL, {"id": user_id, "email": email})).rowcount == 1


async def set_password(connection: Connection, user_id: UUID, password_hash: str) -> None:
    """Ends the open links of the operator into the account: an older one may be in the wrong hands."""
    await connection.execute(_SET_PASSWORD, (password_hash, user_id))
    await connection.execute(_END_LINKS, (user_id,))


# Members. Changes to the members of a workspace are serialised by the lock of its row.

# Not FOR UPDATE: creating a key takes a share lock on the workspace. It would wait for us while we wait for the lock of
# the credential that creates the key.
_LOCK_WORKSPACE = "SELECT owner_id FROM workspaces WHERE id = %s FOR NO KEY UPDATE"
_ADD_MEMBER = """
INSERT INTO members (workspace_id, user_id, role, given_by) VALUES (%s, %s, %s, %s)
ON CONFLICT (workspace_id, user_id) DO UPDATE
SET ended_at = NULL, joined_at = clock_timestamp(), role = excluded.role, given_by = excluded.given_by
WHERE members.ended_at IS NOT NULL
"""
_SET_ROLE = "UPDATE members SET role = %s WHERE workspace_id = %s AND user_id = %s AND ended_at IS NULL AND role <> %s"
_END_MEMBER = """
UPDATE members SET ended_at = clock_timestamp() WHERE workspace_id = %s AND user_id = %s AND ended_at IS NULL
"""
_SETTLE_OWNER = """
UPDATE workspaces w SET revision = w.revision + 1, owner_id = (
    SELECT m.user_id FROM members m
    WHERE m.workspace_id = w.id AND m.role = 'owner' AND m.ended_at IS NULL
    ORDER BY m.joined_at, m.user_id LIMIT 1
)
WHERE w.id = %(workspace)s AND NOT EXISTS (
    SELECT FROM members m
    WHERE m.workspace_id = w.id AND m.user_id = w.owner_id AND m.role = 'owner' AND m.ended_at IS NULL
) AND EXISTS (
    SELECT FROM members m WHERE m.workspace_id = w.id AND m.role = 'owner' AND m.ended_at IS NULL
)
"""
_HAS_OWNER = """
SELECT EXISTS (SELECT FROM members WHERE workspace_id = %s AND role = 'owner' AND ended_at IS NULL)
"""
_MEMBERS = Records(
    MemberBody,
    table="members",
    id_column="user_id",
    columns="actor(u) AS user, r.role, r.joined_at, r.ended_at",
    joins="JOIN users u ON u.id = r.user_id",
)
members, member = _MEMBERS.page, _MEMBERS.get
_MEMBER_BY_EMAIL = """
SELECT actor(u) AS user, m.role, m.joined_at, m.ended_at FROM members m JOIN users u ON u.id = m.user_id
WHERE m.workspace_id = %s AND lower(u.email) = lower(%s)
"""
_PERMISSIONS_OF = "SELECT unnest(permissions_of(%s))"
_MEMBERSHIPS = """
SELECT w.id AS workspace_id, w.name AS workspace_name, m.role
FROM members m JOIN workspaces w ON w.id = m.workspace_id
WHERE m.user_id = %s AND m.ended_at IS NULL ORDER BY m.joined_at, w.id
"""
_WORKSPACES_OF_USER = "SELECT workspace_id FROM members WHERE user_id = %s ORDER BY workspace_id"


async def lock_workspace(connection: Connection, workspace_id: UUID) -> UUID | None:
    """Returns the owner who is shown. None: there is no such workspace."""
    return await fetch_value(connection, _LOCK_WORKSPACE, (workspace_id,))


async def add_member(
    connection: Connection, workspace_id: UUID, user_id: UUID, role: Role, given_by: str | None = None
) -> bool:
    """False if the person was a member already. `given_by`: the issuer that gives the membership."""
    return (await connection.execute(_ADD_MEMBER, (workspace_id, user_id, role, given_by))).rowcount == 1


async def set_role(connection: Connection, workspace_id: UUID, user_id: UUID, role: Role) -> bool:
    """False if the member had this role already."""
    return (await connection.execute(_SET_ROLE, (role, workspace_id, user_id, role))).rowcount == 1


async def end_member(connection: Connection, workspace_id: UUID, user_id: UUID) -> bool:
    """False if the person was not a member."""
    return (await connection.execute(_END_MEMBER, (workspace_id, user_id))).rowcount == 1


async def settle_owner(connection: Connection, workspace_id: UUID) -> bool:
    """If the owner who is shown is an owner no longer, the one who joined first is shown. False: the workspace has no
    owner."""
    await connection.execute(_SETTLE_OWNER, {"workspace": workspace_id})
    return await fetch_bool(connection, _HAS_OWNER, (workspace_id,))


async def member_by_email(connection: Connection, workspace_id: UUID, email: str) -> MemberBody | None:
    """Also a former member."""
    return await fetch_record(connection, MemberBody, _MEMBER_BY_EMAIL, (workspace_id, email))


async def permissions_of(connection: Connection, role: Role) -> list[str]:
    return await fetch_column(connection, _PERMISSIONS_OF, (role,))


async def memberships(connection: Connection, user_id: UUID) -> list[MembershipBody]:
    """First joined first."""
    return await fetch_records(connection, MembershipBody, _MEMBERSHIPS, (user_id,))


async def workspaces_of_user(connection: Connection, user_id: UUID) -> list[UUID]:
    """Including workspaces that the person has left."""
    return await fetch_column(connection, _WORKSPACES_OF_USER, (user_id,))


# Invitations.


class Invitation(Struct, frozen=True):
    """As its link opens it."""

    id: UUID
    # None: a link of the operator into the account `user_id`.
    workspace_id: UUID | None
    workspace_name: str | None
    user_id: UUID | None
    email: str
    role: Role | None
    # The name or the address of the person who made it.
    invited_by: str | None
    # Whether an operator made it, or a person who could still make it today.
    is_authorized: bool


_INVITATIONS = Records(
    InvitationBody,
    table="invitations",
    columns="""r.id, r.email, r.role, CASE WHEN u.id IS NOT NULL THEN actor(u) END AS created_by, r.expires_at,
        r.accepted_at, r.withdrawn_at""",
    joins="LEFT JOIN users u ON u.id = r.created_by",
)
invitation, invitations = _INVITATIONS.get, _INVITATIONS.page
_ADD_INVITATION = """
INSERT INTO invitations (id, workspace_id, user_id, email, role, secret_hash, created_by, expires_at)
VALUES (%s, %s, %s, %s, %s, %s, %s, clock_timestamp() + make_interval(secs => %s))
"""
_WITHDRAW = """
UPDATE invitations SET withdrawn_at = clock_timestamp()
WHERE workspace_id = %s AND id = %s AND withdrawn_at IS NULL AND accepted_at IS NULL
"""
_OPEN_INVITATION = """
SELECT i.id, i.workspace_id, w.name AS workspace_name, i.user_id, i.email, i.role,
       coalesce(u.display_name, u.email) AS invited_by,
       i.created_by IS NULL OR EXISTS (
           SELECT FROM members m
           WHERE m.workspace_id = i.workspace_id AND m.user_id = i.created_by AND m.ended_at IS NULL
             AND (m.role = 'owner' OR (m.role = 'admin' AND i.role <> 'owner'))
       ) AS is_authorized
FROM invitations i
LEFT JOIN workspaces w ON w.id = i.workspace_id
LEFT JOIN users u ON u.id = i.created_by
WHERE i.secret_hash = %s AND i.accepted_at IS NULL AND i.withdrawn_at IS NULL AND i.expires_at > clock_timestamp()
"""
_LOCK_INVITATION = f"{_OPEN_INVITATION} FOR NO KEY UPDATE OF i"
_ACCEPT = "UPDATE invitations SET accepted_at = clock_timestamp(), accepted_by = %s WHERE id = %s"


async def add_invitation(
    connection: Connection,
    workspace_id: UUID,
    email: str,
    role: Role,
    secret: Secret,
    created_by: UUID | None,
    life_seconds: float,
) -> InvitationBody:
    invitation_id = new_id()
    values = (invitation_id, workspace_id, None, email, role, secret.hash, created_by, life_seconds)
    await connection.execute(_ADD_INVITATION, values)
    added = await invitation(connection, workspace_id, invitation_id)
    assert added is not None
    return added


async def add_account_link(
    connection: Connection, user_id: UUID, email: str, secret: Secret, life_seconds: float
) -> None:
    """A link that sets a new password for an account."""
    await connection.execute(_ADD_INVITATION, (new_id(), None, user_id, email, None, secret.hash, None, life_seconds))


async def withdraw_invitation(connection: Connection, workspace_id: UUID, invitation_id: UUID) -> bool:
    """False if it was withdrawn or accepted before."""
    return (await connection.execute(_WITHDRAW, (workspace_id, invitation_id))).rowcount == 1


async def open_invitation(connection: Connection, secret_hash: bytes, *, lock: bool = False) -> Invitation | None:
    """None: unknown, expired, withdrawn or accepted."""
    query = _LOCK_INVITATION if lock else _OPEN_INVITATION
    return await fetch_record(connection, Invitation, query, (secret_hash,))


async def accept_invitation(connection: Connection, invitation_id: UUID, user_id: UUID) -> None:
    await connection.execute(_ACCEPT, (user_id, invitation_id))


# Devices.

_DEVICES = Pages(
    DeviceBody,
    table="devices",
    scope="user_id",
    columns="r.id, r.kind, r.name, r.prefix, r.address, r.expires_at, r.last_used_at",
    # now(): a filter on a page must not be volatile. The device of the caller is valid at that time anyway.
    filters={None: "ended_at IS NULL AND expires_at > now()"},
)
devices = _DEVICES.page
_DEVICE = f"{_DEVICES.get_query} AND r.ended_at IS NULL AND r.expires_at > clock_timestamp()"
_ADD_DEVICE = """
INSERT INTO devices (id, user_id, kind, name, prefix, secret_hash, address, expires_at)
VALUES (%s, %s, %s, %s, %s, %s, %s, clock_timestamp() + make_interval(secs => %s))
RETURNING expires_at
"""
_VALID_DEVICES = "SELECT id FROM devices WHERE user_id = %s AND ended_at IS NULL AND expires_at > clock_timestamp()"
_USER_OF_DEVICE = "SELECT user_id FROM devices WHERE id = %s AND ended_at IS NULL AND expires_at > clock_timestamp()"
_END_DEVICES = """
UPDATE devices SET ended_at = clock_timestamp() WHERE user_id = %s AND id = ANY (%s) AND ended_at IS NULL
"""


async def user_of_device(connection: Connection, device_id: UUID) -> UUID | None:
    """None: the device was signed out."""
    return await fetch_value(connection, _USER_OF_DEVICE, (device_id,))


async def device(connection: Connection, user_id: UUID, device_id: UUID) -> DeviceBody | None:
    """None: there is none, or it was signed out."""
    return await fetch_record(connection, DeviceBody, _DEVICE, (user_id, device_id))


async def add_device(
    connection: Connection,
    user_id: UUID,
    kind: DeviceKind,
    name: str,
    secret: Secret,
    address: str | None,
    life_seconds: float,
) -> tuple[UUID, datetime]:
    """The id of the device, and the end of its life."""
    device_id = new_id()
    values = (device_id, user_id, kind, name, secret.prefix, secret.hash, address, life_seconds)
    expires_at = await fetch_value(connection, _ADD_DEVICE, values)
    assert isinstance(expires_at, datetime)
    return device_id, expires_at


async def valid_devices(connection: Connection, user_id: UUID) -> list[UUID]:
    return await fetch_column(connection, _VALID_DEVICES, (user_id,))


async def end_devices(connection: Connection, user_id: UUID, ids: list[UUID]) -> int:
    return (await connection.execute(_END_DEVICES, (user_id, ids))).rowcount


# Codes of `qd login`.


class DeviceCode(Struct, frozen=True):
    id: UUID
    user_code: str
    name: str
    address: str | None
    expires_at: datetime
    answered_by: UUID | None
    is_approved: bool | None


_UNANSWERED_CODE = """
SELECT id, user_code, name, address, expires_at, answered_by, is_approved FROM device_codes
WHERE user_code = %s AND answered_by IS NULL AND expires_at > clock_timestamp()
"""
_LOCK_UNANSWERED_CODE = f"{_UNANSWERED_CODE} FOR UPDATE"
_LOCK_CODE = """
SELECT id, user_code, name, address, expires_at, answered_by, is_approved FROM device_codes
WHERE secret_hash = %s AND collected_at IS NULL AND expires_at > clock_timestamp() FOR UPDATE
"""
_ADD_CODE = """
INSERT INTO device_codes (id, user_code, secret_hash, name, address, expires_at)
VALUES (%s, %s, %s, %s, %s, clock_timestamp() + make_interval(secs => %s))
ON CONFLICT (user_code) DO NOTHING RETURNING expires_at
"""
_ANSWER_CODE = "UPDATE device_codes SET answered_by = %s, is_approved = %s WHERE id = %s"
_COLLECT_CODE = "UPDATE device_codes SET collected_at = clock_timestamp() WHERE id = %s"
_DELETE_CODES = "DELETE FROM device_codes WHERE expires_at < clock_timestamp() - interval '1 day'"


async def add_device_code(
    connection: Connection, user_code: str, secret: Secret, name: str, address: str | None, life_seconds: float
) -> datetime | None:
    """None: the code is in use."""
    values = (new_id(), user_code, secret.hash, name, address, life_seconds)
    return await fetch_value(connection, _ADD_CODE, values)


async def unanswered_code(connection: Connection, user_code: str, *, lock: bool = False) -> DeviceCode | None:
    query = _LOCK_UNANSWERED_CODE if lock else _UNANSWERED_CODE
    return await fetch_record(connection, DeviceCode, query, (user_code,))


async def lock_code(connection: Connection, secret_hash: bytes) -> DeviceCode | None:
    """None: unknown, expired, or collected before."""
    return await fetch_record(connection, DeviceCode, _LOCK_CODE, (secret_hash,))


async def answer_code(connection: Connection, code_id: UUID, device_id: UUID, *, is_approved: bool) -> None:
    await connection.execute(_ANSWER_CODE, (device_id, is_approved, code_id))


async def collect_code(connection: Connection, code_id: UUID) -> None:
    await connection.execute(_COLLECT_CODE, (code_id,))


# Tries.

# Hashed: people type passwords into the wrong field. lower(), as accounts are found: Python's differs for some letters,
# so that an account could be tried in many spellings.
_SUBJECT = "sha256(convert_to(lower(%(subject)s), 'UTF8'))"
_COUNT_TRY = f"""
INSERT INTO sign_in_tries AS t (subject, tries) VALUES ({_SUBJECT}, 1)
ON CONFLICT (subject) DO UPDATE SET
    tries = CASE WHEN t.began_at <= clock_timestamp() - make_interval(secs => %(window)s) THEN 1 ELSE t.tries + 1 END,
    began_at = CASE
        WHEN t.began_at <= clock_timestamp() - make_interval(secs => %(window)s) THEN clock_timestamp() ELSE t.began_at
    END
RETURNING tries, extract(epoch FROM began_at - clock_timestamp())::float8 + %(window)s
"""  # noqa: S608  built from constants
_FORGET_TRIES = f"DELETE FROM sign_in_tries WHERE subject = {_SUBJECT}"  # noqa: S608
_DELETE_TRIES = "DELETE FROM sign_in_tries WHERE began_at < clock_timestamp() - make_interval(secs => %s)"


async def count_try(connection: Connection, subject: str, window_seconds: float) -> tuple[int, float]:
    """The number of tries in this window, and the seconds until it ends."""
    values = {"subject": subject, "window": window_seconds}
    row = await (await connection.execute(_COUNT_TRY, values)).fetchone()
    assert row is not None
    return row[0], row[1]


async def forget_tries(connection: Connection, subject: str) -> None:
    await connection.execute(_FORGET_TRIES, {"subject": subject})


async def delete_expired(connection: Connection, window_seconds: float) -> int:
    """Codes and tries that no longer matter."""
    codes = (await connection.execute(_DELETE_CODES)).rowcount
    return codes + (await connection.execute(_DELETE_TRIES, (window_seconds,))).rowcount

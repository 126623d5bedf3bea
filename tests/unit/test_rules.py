"""Decisions that need no database."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from quarterdeck.api_keys import rules
from quarterdeck.core.actors import Permission, Principal, Role
from quarterdeck.core.errors import ErrorKind, ServiceError
from quarterdeck.core.settings import TokenSettings
from quarterdeck.core.text_types import MAX_LINE_LENGTH
from quarterdeck.sessions.rules import fork_title
from quarterdeck.sessions.token_service import token_expiry

NOW = datetime(2030, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
SETTINGS = TokenSettings(default_life_seconds=7200, max_life_seconds=36000)


def principal(*permissions: Permission, expires_at: datetime | None = None) -> Principal:
    workspace_id, api_key_id, user_id, scope_id = (uuid4() for _ in range(4))
    return Principal(workspace_id, api_key_id, user_id, Role.OWNER, scope_id, frozenset(permissions), expires_at)


def kind_of(check: object) -> ErrorKind | None:
    assert callable(check)
    try:
        check()
    except ServiceError as fault:
        return fault.kind
    return None


@pytest.mark.parametrize(
    ("held", "asked", "kind"),
    [
        ((), (), None),
        ((Permission.KEY_MANAGE,), (Permission.KEY_MANAGE,), None),
        ((Permission.KEY_MANAGE,), (Permission.WORKSPACE_READ,), ErrorKind.FORBIDDEN),
        (tuple(Permission), tuple(Permission), None),
    ],
)
def test_permissions_within(
    held: tuple[Permission, ...], asked: tuple[Permission, ...], kind: ErrorKind | None
) -> None:
    assert kind_of(lambda: rules.check_within(principal(*held), asked, None)) is kind


@pytest.mark.parametrize(
    ("own", "asked", "kind"),
    [
        (None, None, None),
        (None, NOW + HOUR, None),
        (NOW + HOUR, NOW + HOUR, None),
        (NOW + HOUR, NOW + HOUR + timedelta(microseconds=1), ErrorKind.FORBIDDEN),
        (NOW + HOUR, None, ErrorKind.FORBIDDEN),
    ],
)
def test_life_within(own: datetime | None, asked: datetime | None, kind: ErrorKind | None) -> None:
    assert kind_of(lambda: rules.check_life(principal(expires_at=own), asked)) is kind


@pytest.mark.parametrize(("asked", "kind"), [(None, None), (NOW, ErrorKind.INVALID), (NOW + HOUR, None)])
def test_the_past_is_no_expiry(asked: datetime | None, kind: ErrorKind | None) -> None:
    assert kind_of(lambda: rules.check_expiry(asked, NOW)) is kind


@pytest.mark.parametrize(
    ("own", "asked", "expected"),
    [
        (None, None, NOW + 2 * HOUR),
        (NOW + HOUR, None, NOW + HOUR),
        (NOW + 5 * HOUR, None, NOW + 2 * HOUR),
        (None, NOW + 10 * HOUR, NOW + 10 * HOUR),
    ],
)
def test_expiry_of_a_token(own: datetime | None, asked: datetime | None, expected: datetime) -> None:
    assert token_expiry(asked, NOW, principal(expires_at=own), SETTINGS) == expected


@pytest.mark.parametrize(
    ("own", "asked", "kind"),
    [
        (None, NOW, ErrorKind.INVALID),
        (None, NOW + 10 * HOUR + timedelta(seconds=1), ErrorKind.INVALID),
        (NOW + HOUR, NOW + 2 * HOUR, ErrorKind.FORBIDDEN),
    ],
)
def test_expiry_of_a_token_that_is_refused(own: datetime | None, asked: datetime, kind: ErrorKind) -> None:
    assert kind_of(lambda: token_expiry(asked, NOW, principal(expires_at=own), SETTINGS)) is kind


def test_permissions_read_the_same_however_they_were_asked_for() -> None:
    asked = [Permission.SKILL_MANAGE, Permission.WORKSPACE_READ, Permission.SKILL_MANAGE]
    assert rules.ordered(asked) == [Permission.WORKSPACE_READ, Permission.SKILL_MANAGE]


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        (None, None),
        ("Plan", "Plan (fork)"),
        ("Plan (fork)", "Plan (fork 2)"),
        ("Plan (fork 99)", "Plan (fork 100)"),
        ("Plan (fork 0)", "Plan (fork 0) (fork)"),
        ("a" * MAX_LINE_LENGTH, "a" * (MAX_LINE_LENGTH - 8) + "… (fork)"),
        ("a" * (MAX_LINE_LENGTH - 7), "a" * (MAX_LINE_LENGTH - 7) + " (fork)"),
    ],
)
def test_title_of_a_fork(title: str | None, expected: str | None) -> None:
    assert fork_title(title) == expected
    assert expected is None or len(expected) <= MAX_LINE_LENGTH

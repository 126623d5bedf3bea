"""Who goes straight to the locks, and is remembered for it."""

from uuid import uuid4

from quarterdeck.access.model import Credential, CredentialKind
from quarterdeck.runs.known_callers import KnownCallers

KEY, OTHER_KEY = (Credential(CredentialKind.API_KEY, bytes([number]) * 32) for number in (1, 2))
TOKEN = Credential(CredentialKind.SESSION_TOKEN, b"3" * 32)


def test_known_is_who_was_seen_at_this_session_with_this_workspace_named() -> None:
    known, session_id, workspace_id = KnownCallers(10), uuid4(), uuid4()
    known.add(KEY, session_id, None)
    assert known.has(KEY, session_id, None)
    assert not known.has(KEY, session_id, workspace_id)
    assert not known.has(KEY, uuid4(), None)
    assert not known.has(OTHER_KEY, session_id, None)
    known.add(KEY, session_id, workspace_id)
    assert known.has(KEY, session_id, workspace_id)


def test_a_key_is_no_stranger_anywhere_and_a_token_only_at_its_session() -> None:
    known, session_id = KnownCallers(10), uuid4()
    known.add(KEY, session_id, None)
    known.add(TOKEN, session_id, None)
    assert known.has(TOKEN, session_id, None)
    assert [known.has_key(each) for each in (KEY, OTHER_KEY, TOKEN)] == [True, False, False]


def test_who_came_first_is_forgotten_first() -> None:
    known, sessions = KnownCallers(2), [uuid4() for _ in range(3)]
    for session_id in sessions:
        known.add(KEY, session_id, None)
    assert [known.has(KEY, session_id, None) for session_id in sessions] == [False, True, True]
    assert known.has_key(KEY)
    known.add(TOKEN, sessions[0], None)
    assert [known.has(KEY, session_id, None) for session_id in sessions] == [False, False, True]

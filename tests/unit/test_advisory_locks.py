"""Every advisory lock has a name in db/functions/locks.sql, and no two share a key."""

import re
from pathlib import Path

import quarterdeck
from quarterdeck.db import migrate

_SOURCES = Path(quarterdeck.__file__).parent
_LOCKS = _SOURCES / "db" / "functions" / "locks.sql"
_NAME = re.compile(r"FUNCTION (\w+_lock)\(")
# Up to the parenthesis: what it takes as a key.
_TAKEN = re.compile(r"pg_(?:try_)?advisory_(?:xact_)?lock(?:_shared)?\((\w+|%s)")


def test_no_two_locks_share_a_seed() -> None:
    text = _LOCKS.read_text()
    seeds = re.findall(r"hashtextextended\(.*, (\d+)\)", text)
    assert len(seeds) == len(set(seeds)) == len(_NAME.findall(text)) >= 9


def test_every_lock_is_taken_by_its_name() -> None:
    names = {*_NAME.findall(_LOCKS.read_text())}
    # take_lock() gets the key from its caller.
    taken = set()
    for path in [*_SOURCES.rglob("*.py"), *_SOURCES.rglob("*.sql")]:
        text = path.read_text()
        assert path == _LOCKS or "hashtext" not in text, path
        for key in _TAKEN.findall(text):
            assert key in names | {"lock_key"} or (path.name, key) == ("migrate.py", "%s"), (path, key)
        taken |= names & set(re.findall(r"\w+_lock(?=\()", text if path != _LOCKS else ""))
    assert taken == names, "each of them is used"


def test_the_lock_of_migrations_is_no_small_number() -> None:
    """Other programs on the same database may use those."""
    assert migrate._LOCK > 2**31

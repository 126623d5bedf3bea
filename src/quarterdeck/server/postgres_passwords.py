"""Passwords of the embedded PostgreSQL: one for the owner of the database, one for the role of API and workers.

Each is in a password file of libpq in the data directory, which only its user can read. They separate logins, not
programs: a program that runs as that user can read both files and the database's own files.
"""

import os
import re
import secrets
from contextlib import suppress
from pathlib import Path

from quarterdeck.server.data_directory import (
    ROLE,
    Account,
    Cluster,
    EmbeddedError,
    binary,
    clear_leftovers,
    open_file,
    run_as,
    sync_folder,
)

# An entry of a libpq password file for any host, port and database. Passwords have no character that it escapes.
_PASSWORD_ENTRY = re.compile(r"\*:\*:\*:\*:([A-Za-z0-9_-]{40,})\n")
_TRUST = re.compile(r"^([ \t]*[^#\s].*[ \t])trust[ \t]*$", re.MULTILINE)


def require_passwords(cluster: Cluster, account: Account | None) -> None:
    """Let nobody in without a password. Needs the guard's lock."""
    try:
        _require_passwords(cluster, account)
    except OSError as fault:
        raise EmbeddedError(
            f"the data directory {cluster.data_dir} cannot be used: {fault.strerror}: {fault.filename}"
        ) from fault


def _require_passwords(cluster: Cluster, account: Account | None) -> None:
    rules_file = cluster.pgdata / "pg_hba.conf"
    rules = rules_file.read_text()
    closed = _TRUST.sub(r"\1scram-sha-256", rules)
    if closed == rules and read_password(cluster.owner_password) is not None:
        return
    clear_leftovers(cluster)
    # The file gets its name last: without it, whether it was lost or never finished, all of this is repeated.
    draft = cluster.owner_password.with_suffix(".new")
    _set_owner_password(cluster, account, _write_password(draft))
    if closed != rules:
        new_rules = cluster.pgdata / "pg_hba.conf.new"
        new_rules.write_text(closed)
        new_rules.chmod(0o600)
        if account is not None:
            os.chown(new_rules, account.uid, account.gid)
        new_rules.rename(rules_file)
        sync_folder(cluster.pgdata)
    draft.rename(cluster.owner_password)
    sync_folder(cluster.data_dir)


def _set_owner_password(cluster: Cluster, account: Account | None, password: str) -> None:
    """In single-user mode: nobody has to be let in for it. One command a line, from stdin."""
    commands = f"ALTER ROLE {ROLE} PASSWORD '{password}'\nREVOKE CONNECT ON DATABASE template1 FROM PUBLIC\n"
    done = run_as(account, [str(binary("postgres")), "--single", "-D", str(cluster.pgdata), ROLE], commands)
    # Not the lines that repeat the statement.
    faults = [line for line in done.stderr.splitlines() if "ERROR" in line or "FATAL" in line or "PANIC" in line]
    if done.returncode != 0 or faults:
        reason = faults[0] if faults else f"code {done.returncode}"
        raise EmbeddedError(f"cannot set the owner's password in {cluster.pgdata}: {reason}")


def read_password(path: Path) -> str | None:
    """The password in one of the two files; None if the file is missing."""
    try:
        entry = _PASSWORD_ENTRY.fullmatch(path.read_text())
    except FileNotFoundError:
        return None
    if entry is None:
        raise EmbeddedError(f"{path} is not a valid password file: delete it, and a new one is created")
    return entry[1]


def make_password(path: Path) -> str:
    """The password in this file, which is created if it is missing. Of several processes that create it, one wins."""
    if (password := read_password(path)) is not None:
        return password
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    _write_password(draft)
    with suppress(FileExistsError):
        os.link(draft, path)
    draft.unlink()
    sync_folder(path.parent)
    password = read_password(path)
    assert password is not None
    return password


def _write_password(path: Path) -> str:
    password = secrets.token_urlsafe(32)
    with open_file(path, os.O_WRONLY | os.O_TRUNC) as file:
        file.write(f"*:*:*:*:{password}\n".encode())
        os.fsync(file.fileno())
    return password

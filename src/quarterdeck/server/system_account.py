"""The system account of the embedded PostgreSQL if root starts it: PostgreSQL refuses to run as root."""

import fcntl
import grp
import os
import pwd
import shutil
import subprocess
import time
from dataclasses import dataclass

SYSTEM_USER = "pgserver"
# Only root can create files in this folder.
_LOCK = "/run/quarterdeck-account.lock"


class EmbeddedError(Exception):
    """The message is one line for the terminal."""


@dataclass(frozen=True)
class Account:
    """The system account of the server."""

    uid: int
    gid: int


def system_account() -> Account:
    """Looked up under the lock too: of two `useradd` at the same time, the second can replace the entry of the first by
    one with another uid."""
    try:
        with open(os.open(_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return _find_account() or _create_account()
    except OSError as fault:
        # On a read-only file system no process can be creating the account now.
        if account := _find_account():
            return account
        raise _account_error(f"{fault.strerror}: {fault.filename}") from fault


def _find_account() -> Account | None:
    try:
        entry = pwd.getpwnam(SYSTEM_USER)
    except KeyError:
        return None
    return Account(entry.pw_uid, entry.pw_gid)


def _create_account() -> Account:
    commands = (
        ["useradd", "--system", "--user-group", "--no-create-home", "--shell", "/bin/false", SYSTEM_USER],
        ["adduser", "-S", "-D", "-H", "-s", "/bin/false", SYSTEM_USER],  # BusyBox
    )
    command = next((c for c in commands if shutil.which(c[0])), None)
    if command is None:
        _write_account()
    reason = "its entry cannot be found"
    # Retried: another program may hold the lock of /etc/passwd.
    for _ in range(20):
        if account := _find_account():
            return account
        if command is not None:
            made = subprocess.run(command, capture_output=True, text=True, check=False)
            reason = made.stderr.strip() or reason
        time.sleep(0.1)
    raise _account_error(reason)


def _write_account() -> None:
    """For containers without a program that does it. PostgreSQL needs the entry: it looks up the name of its uid."""
    used = {entry.pw_uid for entry in pwd.getpwall()} | {group.gr_gid for group in grp.getgrall()}
    # The range of system accounts, from the top, as `useradd` does.
    number = next(number for number in range(999, 99, -1) if number not in used)
    for path, line in (
        ("/etc/group", f"{SYSTEM_USER}:*:{number}:\n"),
        ("/etc/passwd", f"{SYSTEM_USER}:*:{number}:{number}::/nonexistent:/bin/false\n"),
    ):
        with open(path, "a+b") as file:
            file.seek(0)
            text = file.read()
            file.write((b"" if text.endswith(b"\n") or not text else b"\n") + line.encode())


def _account_error(reason: str) -> EmbeddedError:
    return EmbeddedError(
        f"PostgreSQL does not run as root, and the system user {SYSTEM_USER} cannot be created ({reason}): create it, "
        "run as an ordinary user, or set QUARTERDECK_DATABASE_URL"
    )

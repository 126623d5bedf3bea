"""A real PgBouncer in transaction mode, configured by docs/run/database.md, in front of the PostgreSQL of a test."""

import os
import pwd
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from quarterdeck.server.data_directory import Account, identity
from tests.pages import blocks_of
from tests.world import LOGIN, LOGIN_PASSWORD, START_SECONDS, STOP_SECONDS, app_url, free_port


class PgBouncer:
    """On one port for as long as it exists, running or not."""

    def __init__(self, program: str, folder: Path, database_url: str, example: str, pool_size: int) -> None:
        self._program = program
        self._folder = folder
        self._port = free_port()
        self._database_url = database_url
        self._process: subprocess.Popen[bytes] | None = None
        # It refuses to run as root. The embedded PostgreSQL lets only its own user connect.
        host = str(conninfo_to_dict(database_url).get("host", ""))
        owner = os.stat(host).st_uid if host.startswith("/") else pwd.getpwnam("nobody").pw_uid
        self._identity = identity(Account(owner, pwd.getpwuid(owner).pw_gid) if os.geteuid() == 0 else None)
        (folder / "userlist.txt").write_text(f'"{LOGIN}" "{LOGIN_PASSWORD}"\n')
        (folder / "pgbouncer.ini").write_text(self._configuration(example, pool_size))
        if os.geteuid() == 0:
            for path in (folder, *folder.iterdir()):
                os.chown(path, owner, -1)

    def _configuration(self, text: str, pool_size: int) -> str:
        host, port = (conninfo_to_dict(self._database_url)[part] for part in ("host", "port"))
        values = {
            "quarterdeck": f"host={host} port={port}",
            "listen_addr": "127.0.0.1",
            "listen_port": str(self._port),
            "auth_file": str(self._folder / "userlist.txt"),
            "default_pool_size": str(pool_size),
        }
        for name, value in values.items():
            text, count = re.subn(rf"^{name} = .*$", f"{name} = {value}", text, flags=re.MULTILINE)
            assert count == 1, name
        # Any database of the server.
        return text.replace("quarterdeck = ", "* = ", 1)

    def url(self, database_url: str | None = None) -> str:
        """For the login of the service."""
        given = app_url(database_url or self._database_url)
        return make_conninfo(given, host="127.0.0.1", port=self._port, passfile="/dev/null")

    def start(self) -> None:
        with (self._folder / "pgbouncer.log").open("ab") as output:
            self._process = subprocess.Popen(
                [self._program, str(self._folder / "pgbouncer.ini")],
                stdout=output,
                stderr=output,
                cwd="/",
                **self._identity,
            )
        deadline = time.monotonic() + START_SECONDS
        while True:
            assert self._process.poll() is None, self.log
            try:
                psycopg.connect(self.url(), connect_timeout=5).close()
                return
            except psycopg.OperationalError:
                assert time.monotonic() < deadline, self.log
                time.sleep(0.02)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_SECONDS)
            self._process = None

    @property
    def log(self) -> str:
        return (self._folder / "pgbouncer.log").read_text()[-4000:]


@contextmanager
def pgbouncer_running(database_url: str, example: str, *, pool_size: int) -> Iterator[PgBouncer]:
    """`example`: the configuration of the docs. `pool_size`: connections to PostgreSQL for each database."""
    program = shutil.which("pgbouncer", path=f"{os.defpath}:/usr/sbin:/usr/local/bin:/usr/local/sbin")
    if program is None:
        pytest.skip("pgbouncer is not installed: apt-get install pgbouncer")
    with tempfile.TemporaryDirectory(prefix="qd-pgbouncer-") as folder:
        bouncer = PgBouncer(program, Path(folder), database_url, example, pool_size)
        try:
            bouncer.start()
            yield bouncer
        finally:
            bouncer.stop()


@contextmanager
def behind_pgbouncer(postgres_url: str) -> Iterator[None]:
    """Every API and worker that a test starts on this server reaches it through PgBouncer."""
    (example,) = blocks_of("docs/run/database.md", "ini", "PgBouncer")
    # Its service logs in while PgBouncer starts, before a test has migrated a database.
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(
            sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(LOGIN), sql.Literal(LOGIN_PASSWORD))
        )
    host = conninfo_to_dict(postgres_url)["host"]
    with pgbouncer_running(postgres_url, example.text, pool_size=5) as bouncer:

        def pooled(database_url: str) -> str | None:
            return bouncer.url(database_url) if conninfo_to_dict(database_url)["host"] == host else None

        with patch("tests.world.pooler_url", pooled):
            yield

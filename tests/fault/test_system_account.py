"""The account of the embedded PostgreSQL as root: created once, also by several processes at the same time. In a mount
namespace with a copy of /etc, so that the machine's own accounts are not touched."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from quarterdeck.server.data_directory import SYSTEM_USER

PROCESSES = 6

# Each process looks up its account until all of them have one: an entry must not go away again.
CREATE = """
import multiprocessing, pwd, sys
from quarterdeck.server.data_directory import system_account

context = multiprocessing.get_context("fork")
number = int(sys.argv[1])
begin, created, results = context.Barrier(number), context.Value("i", 0), context.Queue()

def create():
    begin.wait()
    try:
        account = system_account()
    finally:
        with created.get_lock():
            created.value += 1
    last = False
    while not last:
        last = created.value == number
        pwd.getpwuid(account.uid)
    results.put((account.uid, account.gid))

processes = [context.Process(target=create) for _ in range(number)]
for process in processes:
    process.start()
for process in processes:
    process.join()
assert [process.exitcode for process in processes] == [0] * number
assert len({results.get() for _ in processes}) == 1
"""
START = """
import sys
from pathlib import Path
from quarterdeck.server.embedded_postgres import running
with running(Path(sys.argv[1])):
    pass
"""


def can_unshare() -> bool:
    command = ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/run"]
    return shutil.which("unshare") is not None and subprocess.run(command, capture_output=True).returncode == 0


pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0 or not can_unshare(), reason="needs root and a mount namespace"),
    pytest.mark.long,
]


@pytest.fixture
def etc(tmp_path: Path) -> Path:
    """A copy of /etc without the account."""
    etc = tmp_path / "etc"
    shutil.copytree("/etc", etc, symlinks=True)
    for name in ("passwd", "group", "shadow", "gshadow"):
        if (etc / name).exists():
            lines = (etc / name).read_text().splitlines(keepends=True)
            (etc / name).write_text("".join(line for line in lines if not line.startswith(f"{SYSTEM_USER}:")))
    return etc


def run_with(etc: Path, script: str, argument: str, path: str = os.environ["PATH"]) -> None:
    mounts = f"mount --bind '{etc}' /etc && mount -t tmpfs none /run"
    ran = subprocess.run(
        [
            *("unshare", "--mount", "sh", "-c", f'{mounts} && PATH="$1" exec "$2" -c "$3" "$4"'),
            *("sh", path, sys.executable, script, argument),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr


def number_of_entries(etc: Path, name: str) -> int:
    return sum(line.startswith(f"{SYSTEM_USER}:") for line in (etc / name).read_text().splitlines())


@pytest.mark.parametrize("path", [os.environ["PATH"], "/nowhere"], ids=["useradd", "no useradd"])
def test_several_processes_create_one_account(etc: Path, path: str) -> None:
    run_with(etc, CREATE, str(PROCESSES), path)
    assert number_of_entries(etc, "passwd") == number_of_entries(etc, "group") == 1


def test_a_last_line_without_a_newline_stays_whole(etc: Path) -> None:
    before = (etc / "passwd").read_text().rstrip("\n")
    (etc / "passwd").write_text(before)
    run_with(etc, CREATE, "1", "/nowhere")
    assert (etc / "passwd").read_text().startswith(f"{before}\n{SYSTEM_USER}:")


@pytest.mark.long
def test_the_server_starts_without_useradd(etc: Path, tmp_path: Path) -> None:
    run_with(etc, START, str(tmp_path / "data"), "/nowhere")
    assert number_of_entries(etc, "passwd") == 1

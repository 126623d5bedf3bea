"""Which sandbox is used, and what happens if it does not work."""

import asyncio
import ctypes
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from quarterdeck.core.settings import SandboxSettings
from quarterdeck.sandbox.adapter import CommandOutcome, ErrorTail, Service
from quarterdeck.sandbox.choice import find_sandbox, why_no_sandbox
from quarterdeck.sandbox.limits import version_2_parents
from quarterdeck.sandbox.model import SandboxUnavailable
from tests.pages import blocks_of, texts_of
from tests.sandbox.accounts import Child, account, run

_DOCS = Path(__file__).parents[2] / "docs" / "run" / "sandbox.md"
_CLONE_NEWUSER = 0x10000000


@pytest.mark.long
def test_a_named_sandbox_that_does_not_work_stops_the_start(tmp_path: Path) -> None:
    environ = {**os.environ, "QUARTERDECK_SANDBOX_KIND": "container"}
    ended = subprocess.run(
        [sys.executable, "-m", "quarterdeck", "serve", "--data", str(tmp_path / "data"), "--port", "0"],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode != 0
    assert ended.stderr == (
        "qd: QUARTERDECK_SANDBOX_KIND: QUARTERDECK_SANDBOX_CONTAINER_IMAGE is not set (docs/run/sandbox.md)\n"
    )
    assert not (tmp_path / "data").exists()


def test_without_user_namespaces() -> None:
    with account("ordinary") as worker:

        async def work() -> list[object]:
            _forbid_user_namespaces()
            found: list[object] = []
            for kind in ("auto", "bubblewrap"):
                settings = SandboxSettings(kind=kind)
                found.append(await why_no_sandbox(settings, worker.folder))
                try:
                    found.append(await find_sandbox(settings, worker.folder))
                except SandboxUnavailable as fault:
                    found.append(str(fault))
            return found

        auto_missing, auto_found, named_missing, named_found = worker.run(work)
        assert (auto_missing, auto_found, named_missing) == (named_found, None, None)
        assert named_found.startswith("bubblewrap did not start: bwrap: ")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_root_of_few_users_says_what_to_do(tmp_path: Path) -> None:
    """As in a container without a range of users."""

    async def work() -> str | None:
        _forbid_user_namespaces()
        return await why_no_sandbox(SandboxSettings(), tmp_path)

    assert Child(work, None).result() == (
        "bubblewrap needs the user 64000, which this root cannot use (Invalid argument): run as an ordinary user, or "
        "set QUARTERDECK_SANDBOX_USER_ID to a user of this container that has no account"
    )


def _forbid_user_namespaces() -> None:
    """In this process, by a namespace of its own that allows no further ones."""
    user = os.geteuid()
    assert ctypes.CDLL(None).unshare(_CLONE_NEWUSER) == 0
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/sys/user/max_user_namespaces").write_text("0")


async def test_none_is_none() -> None:
    settings = SandboxSettings(kind="none")
    assert await find_sandbox(settings, Path("/nonexistent")) is None
    reason = await why_no_sandbox(settings, Path("/nonexistent"))
    assert reason is not None
    assert "QUARTERDECK_SANDBOX_KIND" in reason


def test_groups_of_version_2_are_created_only_where_they_were_delegated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "unit" / "main"
    own.mkdir(parents=True)
    for folder in (own, own.parent):
        (folder / "cgroup.subtree_control").write_text("")
    assert list(version_2_parents(own)) == []
    (own.parent / "cgroup.subtree_control").write_text("cpu memory pids")
    # The kernel would add to it, not replace it.
    (own.parent / "cgroup.subtree_control").chmod(0o444)
    monkeypatch.setattr(os, "geteuid", lambda: own.parent.stat().st_uid + 1)
    assert list(version_2_parents(own)) == []
    if own.parent.stat().st_uid != 0:
        monkeypatch.undo()
        assert list(version_2_parents(own)) == [own.parent]


async def test_the_adapter_in_the_documentation(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    exec("".join(texts_of(blocks_of("docs/run/sandbox.md", "python", "An adapter of your own"))), names)
    remote = names["Remote"](_Service(tmp_path / "machine"))
    await remote.check()
    folder, skill = tmp_path / "own", tmp_path / "skill"
    folder.mkdir()
    skill.mkdir()
    (skill / "run.sh").write_text("echo ran > kept; echo said; exit 4")
    ran = await run(remote, "sh skills/one/run.sh", folder, one=skill)
    assert (ran.outcome, ran.output) == (CommandOutcome(4), "said\n")
    assert sorted(os.listdir(folder)) == ["kept"]
    assert not (tmp_path / "machine").exists()
    service = Service(
        workspace_id=uuid4(),
        arguments=["cat"],
        environment={},
        network=False,
        readable=[],
        errors=ErrorTail(),
        buffer_bytes=1024,
    )
    async with remote.serve(service) as pipes:
        pipes.stdin.write(b"line\n")
        assert await pipes.stdout.readline() == b"line\n"
        pipes.stdin.close()
        assert await pipes.stdout.read() == b""
    assert not (tmp_path / "machine").exists()


class _Service:
    """Stands for a service: a folder is its machine."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def ping(self) -> None:
        pass

    async def create_machine(self, max_seconds: float | None, network: bool = False) -> "_Service":
        return self

    async def start(
        self, arguments: list[str], environment: dict[str, str], folder: str, limit: int, write: Any
    ) -> tuple[asyncio.StreamWriter | None, asyncio.StreamReader | None]:
        (self._root / folder[1:]).mkdir(parents=True)
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*arguments, stdin=pipe, stdout=pipe, limit=limit)
        return process.stdin, process.stdout

    async def upload(self, source: Path, target: str) -> None:
        self._copy(source, self._root / target[1:])

    async def execute(self, arguments: list[str], folder: str, write: Any) -> int:
        ended = subprocess.run(arguments, cwd=self._root / folder[1:], capture_output=True, check=False)
        write(ended.stdout)
        return ended.returncode

    async def download(self, source: str, target: Path, exclude: list[str]) -> None:
        for path in exclude:
            subprocess.run(["rm", "-r", self._root / source[1:] / path.split("/")[0]], check=True)
        self._copy(self._root / source[1:], target)

    async def delete(self) -> None:
        subprocess.run(["rm", "-r", self._root], check=True)

    @staticmethod
    def _copy(source: Path, target: Path) -> None:
        target.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "-a", f"{source}/.", target], check=True)

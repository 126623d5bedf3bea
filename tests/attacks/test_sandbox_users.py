"""What the kernel counts for a user of the host is not shared by workspaces."""

import os
import pwd
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from quarterdeck.core.settings import SandboxSettings
from quarterdeck.sandbox.adapter import ErrorTail, Service
from quarterdeck.sandbox.host_users import HostUsers
from quarterdeck.sandbox.model import SandboxUnavailable
from tests.sandbox.accounts import Child, account, bubblewrap

# Takes all instances of inotify that its user can have, and says so.
_TAKE_ALL = """python3 -c 'import ctypes, time
libc = ctypes.CDLL(None)
while libc.inotify_init() >= 0: pass
print("taken", flush=True); time.sleep(1000)'"""
_TAKE_ONE = """python3 -c 'import ctypes; print(ctypes.CDLL(None).inotify_init() >= 0)'"""


def settings(number: int) -> SandboxSettings:
    return SandboxSettings(user_id=1_500_000_000, users=number)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
async def test_a_workspace_cannot_take_all_inotify_instances() -> None:
    def service(workspace_id: UUID, script: str) -> Service:
        return Service(
            workspace_id=workspace_id,
            arguments=["/bin/bash", "-c", script],
            environment={},
            network=False,
            readable=[],
            errors=ErrorTail(),
            buffer_bytes=1024,
        )

    with account("root") as worker:
        sandbox = await bubblewrap(worker.settings())
        attacker, neighbour = uuid4(), uuid4()
        async with sandbox.serve(service(attacker, _TAKE_ALL)) as taking:
            assert await taking.stdout.readline() == b"taken\n"
            found = []
            for workspace_id in (attacker, neighbour):
                async with sandbox.serve(service(workspace_id, _TAKE_ONE)) as pipes:
                    found.append(await pipes.stdout.readline())
        assert found == [b"False\n", b"True\n"]


def test_users_of_workspaces_differ_and_are_free_after_the_last_use(tmp_path: Path) -> None:
    users = HostUsers(settings(3), tmp_path)
    ids = [uuid4() for _ in range(4)]
    held = [users.hold(one) for one in ids[:3]]
    assert sorted(held) == [1_500_000_000, 1_500_000_001, 1_500_000_002]
    assert users.hold(ids[0]) == held[0]
    users.release(ids[0])
    with pytest.raises(SandboxUnavailable, match="QUARTERDECK_SANDBOX_USERS"):
        users.hold(ids[3])
    users.release(ids[1])
    assert users.hold(ids[3]) == held[1]


def test_processes_that_share_a_data_folder_use_different_users(tmp_path: Path) -> None:
    workspace_id = uuid4()
    first = HostUsers(settings(2), tmp_path)
    user_id = first.hold(workspace_id)

    async def elsewhere() -> int:
        return HostUsers(settings(2), tmp_path).hold(workspace_id)

    assert Child(elsewhere, None).result() not in (user_id, None)
    # Its process has ended.
    assert first.hold(uuid4()) != user_id


def test_users_with_an_account_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    users = HostUsers(settings(2), tmp_path)
    found = pwd.getpwuid
    monkeypatch.setattr(pwd, "getpwuid", lambda number: found(0 if number == 1_500_000_000 else number))
    assert users.hold(UUID(int=0)) == 1_500_000_001

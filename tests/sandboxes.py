"""Workers with a sandbox: their settings, the calls that the demo model makes, and what commands leave behind."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from msgspec import Struct

from quarterdeck.core.settings import SandboxSettings
from tests.fault.waiting import start, succeeded
from tests.sandbox.accounts import new_user_id
from tests.workers import log_of
from tests.world import World


class Host(Struct, frozen=True):
    """A folder that the users of the sandbox can enter, and users of its own."""

    path: Path
    # The first one.
    user_id: int

    @property
    def folders(self) -> Path:
        """The root folders of workers."""
        return self.path / "sandboxes"

    @property
    def gate(self) -> Path:
        """Commands can see it: they wait until there is such a file."""
        return self.path / "gate" / "open"

    @property
    def settings(self) -> dict[str, object]:
        return {
            "SANDBOX_KIND": "bubblewrap",
            "SANDBOX_READABLE": self.gate.parent,
            "SANDBOX_USER_ID": self.user_id,
            "SANDBOX_FOLDER": self.folders,
        }

    @property
    def _users(self) -> range:
        return range(self.user_id, self.user_id + (SandboxSettings().users if os.geteuid() == 0 else 1))

    def commands(self) -> list[str]:
        """The processes of sandboxes. Without those that have ended and for which process 1 has not waited yet."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                words = process.cmdline()
                # The user of a worker that is not root has other processes.
                is_ours = os.geteuid() == 0 or str(self.path) in " ".join(words)
                if words and process.uids().real in self._users and is_ours:
                    found.append(f"{process.pid} {words}")
        return found


@contextmanager
def sandbox_host() -> Iterator[Host]:
    path = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="quarterdeck-test-"))
    path.chmod(0o755)
    (path / "gate").mkdir(mode=0o755)
    try:
        yield Host(path, new_user_id())
    finally:
        shutil.rmtree(path)


def call(tool: str, **arguments: object) -> str:
    return f"call: {tool} {json.dumps(arguments)}"


def bash(command: str, **arguments: object) -> str:
    return call("bash", command=command, **arguments)


async def results(world: World, session_id: str, *calls: str) -> list[str]:
    """The results of these calls, made in one answer of a new run."""
    before = len(await all_results(world, session_id))
    await succeeded(world, await start(world, session_id, "\n".join(calls)))
    return (await all_results(world, session_id))[before:]


async def all_results(world: World, session_id: str) -> list[str]:
    return [entry["data"]["text"] for entry in await log_of(world, session_id) if entry["type"] == "tool.result"]


async def content(world: World, session_id: str, path: str) -> bytes:
    answer = await world.http.get(
        f"/v1/sessions/{session_id}/files/content", params={"path": path}, headers=world.headers()
    )
    assert answer.status_code == 200, answer.text
    return answer.content

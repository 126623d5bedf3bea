"""Commands in containers, started by `docker` or `podman`. The engine keeps all bounds except that of the folder."""

import asyncio
import math
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import suppress

from quarterdeck.agents.sandbox.bwrap_arguments import ENVIRONMENT, RESERVED
from quarterdeck.agents.sandbox.descriptors import finish
from quarterdeck.agents.sandbox.model import Command, Outcome, SandboxUnavailable
from quarterdeck.agents.sandbox.output_tail import last_line
from quarterdeck.agents.sandbox.rlimits import OPEN_FILES
from quarterdeck.agents.sandbox.trial import try_sandbox
from quarterdeck.agents.sandbox.watcher import Watcher, in_units, outcome_of, stopped
from quarterdeck.core.settings import SandboxSettings, WorkspaceSettings, variable

_KILLED = 137
# The engine could not start the command. A command may end with it too.
_ENGINE_ERROR = 125
_ENGINE_ERROR_STARTS = ("Error", "docker:", "podman:")
# Of the container besides the command: its init, and `timeout`.
_OWN_PROCESSES = 2
# A worker that was killed cannot end its container, which then ends so long after its time.
_GRACE_SECONDS = 5
_MOUNT_POINTS_BYTES = 1024 * 1024


class Container:
    def __init__(self, settings: SandboxSettings, workspace: WorkspaceSettings) -> None:
        self._settings = settings
        self._workspace = workspace

    @property
    def user_id(self) -> int | None:
        return self._settings.user_id if os.geteuid() == 0 else None

    async def check(self) -> None:
        if not self._settings.container_image:
            raise SandboxUnavailable(f"{variable('sandbox', 'container_image')} is not set")
        if shutil.which(self._settings.container_command) is None:
            raise SandboxUnavailable(f"the program {self._settings.container_command} was not found")
        await try_sandbox(self, "the container")

    async def run(self, command: Command) -> Outcome:
        name = f"quarterdeck-sandbox-{secrets.token_hex(8)}"
        process = await self._engine(
            *run_arguments(self._settings, self._workspace, command, name, os.geteuid()), output=command.output.fileno()
        )
        watcher = Watcher(command, self._settings, self._workspace, None, None)
        try:
            outcome = await outcome_of(process.wait(), watcher, command.seconds)
        finally:
            await finish(self._remove(name, process))
        if outcome.exit_code == _ENGINE_ERROR and last_line(command.output).startswith(_ENGINE_ERROR_STARTS):
            raise SandboxUnavailable(f"the container did not start: {last_line(command.output)}")
        if outcome.exit_code == _KILLED and outcome.stopped is None:
            memory = in_units(self._settings.memory_bytes)
            return Outcome(_KILLED, stopped(f"it was killed, probably since it used more than {memory} of memory"))
        return outcome

    async def _remove(self, name: str, process: asyncio.subprocess.Process) -> None:
        """Until the client has ended, it may still be creating the container."""
        while process.returncode is None:
            await (await self._engine("rm", "--force", name, output=asyncio.subprocess.DEVNULL)).wait()
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), 1)

    async def _engine(self, *arguments: str, output: int) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            self._settings.container_command,
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            # It must end the container also when the terminal of the worker interrupts its processes.
            start_new_session=True,
        )


def run_arguments(
    settings: SandboxSettings, workspace: WorkspaceSettings, command: Command, name: str, user_id: int
) -> list[str]:
    """`user_id` is that of the worker."""
    assert settings.container_image is not None, "check() comes first"
    user = settings.user_id if user_id == 0 else user_id
    is_rootless_podman = user_id != 0 and os.path.basename(settings.container_command) == "podman"
    return [
        *("run", "--rm", "--init", "--pull", "never", "--name", name, "--hostname", "sandbox"),
        *(() if settings.network else ("--network", "none")),
        *("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
        *("--user", f"{user}:{user}"),
        *(("--userns", "keep-id") if is_rootless_podman else ()),
        *_limits(settings, workspace),
        *_mounts(settings, command),
        *(part for key, value in ENVIRONMENT.items() if key != "PATH" for part in ("--env", f"{key}={value}")),
        *("--workdir", "/workspace", "--entrypoint", "timeout", settings.container_image),
        *("-s", "KILL", str(math.ceil(command.seconds) + _GRACE_SECONDS), *command.arguments),
    ]


def _limits(settings: SandboxSettings, workspace: WorkspaceSettings) -> Iterator[str]:
    processes = settings.processes + _OWN_PROCESSES
    yield from ("--pids-limit", str(processes))
    yield from ("--memory", str(settings.memory_bytes), "--memory-swap", str(settings.memory_bytes))
    yield from ("--cpu-shares", "512", "--oom-score-adj", "1000")
    limits = {"fsize": workspace.file_bytes, "nofile": OPEN_FILES, "core": 0}
    for name, value in limits.items():
        yield from ("--ulimit", f"{name}={value}:{value}")


def _mounts(settings: SandboxSettings, command: Command) -> Iterator[str]:
    yield from ("--tmpfs", f"/tmp:rw,nosuid,nodev,mode=1777,size={settings.temporary_bytes}")  # noqa: S108
    yield from ("--shm-size", str(settings.temporary_bytes))
    yield from ("--mount", f"type=bind,source={command.folder},target=/workspace")
    # Owned by root, so that only the mount points in it can be used.
    for name in sorted({RESERVED, *(path.split("/")[0] for path in command.read_only)}):
        yield from ("--tmpfs", f"/workspace/{name}:rw,nosuid,nodev,mode=0755,size={_MOUNT_POINTS_BYTES}")
    for path, source in command.read_only.items():
        yield from ("--mount", f"type=bind,source={source},target=/workspace/{path},readonly")

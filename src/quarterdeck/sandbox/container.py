"""Commands in containers, started by `docker` or `podman`. The engine keeps all bounds except that of the folder."""

import asyncio
import math
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from quarterdeck.core.settings import SandboxSettings, variable
from quarterdeck.sandbox.adapter import (
    SANDBOX_FOLDER,
    Command,
    CommandOutcome,
    Pipes,
    Service,
    finish,
    last_line,
    open_pipes,
    try_sandbox,
)
from quarterdeck.sandbox.bwrap_arguments import ENVIRONMENT, MOUNT_POINTS_BYTES, hidden_folders, private_folders
from quarterdeck.sandbox.host_users import host_users, user_of
from quarterdeck.sandbox.limit_watcher import Watcher, in_units, outcome_of, stopped
from quarterdeck.sandbox.limits import OPEN_FILES
from quarterdeck.sandbox.model import SandboxUnavailable
from quarterdeck.sandbox.scan import RESERVED

_KILLED = 137
# The engine could not start the command. A command may end with it too.
_ENGINE_ERROR = 125
_ENGINE_ERROR_STARTS = ("Error", "docker:", "podman:")
# Processes of the container besides the command: its init, and `timeout`.
_OWN_PROCESSES = 2
# A worker that was killed cannot end its container, which then ends so long after its time.
_GRACE_SECONDS = 5
# The container ends with this shell: when the command ends, and at the end of stdin, as after the death of the worker.
_SERVICE_SCRIPT = '{ cat; kill -KILL $$; } | { "$@"; kill -KILL $$; }'


class Container:
    def __init__(self, settings: SandboxSettings, data_dir: Path) -> None:
        self._settings = settings
        self.users = host_users(settings, data_dir)
        self._private = private_folders(data_dir, Path.cwd())

    async def check(self) -> None:
        if not self._settings.container_image:
            raise SandboxUnavailable(f"{variable('sandbox', 'container_image')} is not set")
        if shutil.which(self._settings.container_command) is None:
            raise SandboxUnavailable(f"the program {self._settings.container_command} was not found")
        await try_sandbox(self, "the container")

    async def run(self, command: Command) -> CommandOutcome:
        name = _new_name()
        process = await self._engine(*run_arguments(self._settings, command, name), output=command.output.fileno())
        watcher = Watcher(command, self._settings, None, None)
        try:
            outcome = await outcome_of(process.wait(), watcher, command.seconds)
        finally:
            await finish(self._remove(name, process))
        if outcome.exit_code == _ENGINE_ERROR and last_line(command.output).startswith(_ENGINE_ERROR_STARTS):
            raise SandboxUnavailable(f"the container did not start: {last_line(command.output)}")
        if outcome.exit_code == _KILLED and outcome.stopped is None:
            memory = in_units(self._settings.memory_bytes)
            return CommandOutcome(
                _KILLED, stopped(f"it was killed, probably since it used more than {memory} of memory")
            )
        return outcome

    @asynccontextmanager
    async def serve(self, service: Service) -> AsyncIterator[Pipes]:
        name = _new_name()
        with user_of(self.users, service.workspace_id) as user_id:
            arguments = serve_arguments(self._settings, service, self._private, name, user_id)
            async with open_pipes(service) as (pipes, theirs, stderr):
                process = await self._engine(
                    *arguments, output=stderr, pipes=theirs.fileno(), environment=service.environment
                )
                theirs.close()
                try:
                    yield pipes
                finally:
                    await finish(self._remove(name, process))

    async def _remove(self, name: str, process: asyncio.subprocess.Process) -> None:
        """Until the client has ended, it may still be creating the container."""
        while process.returncode is None:
            await (await self._engine("rm", "--force", name, output=asyncio.subprocess.DEVNULL)).wait()
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), 1)

    async def _engine(
        self, *arguments: str, output: int, pipes: int | None = None, environment: Mapping[str, str] | None = None
    ) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            self._settings.container_command,
            *arguments,
            stdin=asyncio.subprocess.DEVNULL if pipes is None else pipes,
            stdout=output if pipes is None else pipes,
            stderr=output,
            env=None if environment is None else {**os.environ, **environment},
            # It must end the container also when the terminal of the worker interrupts its processes.
            start_new_session=True,
        )


def _new_name() -> str:
    return f"quarterdeck-sandbox-{secrets.token_hex(8)}"


def run_arguments(settings: SandboxSettings, command: Command, name: str) -> list[str]:
    assert settings.container_image is not None, "check() comes first"
    return [
        *("run", *_isolation(settings, name, command.user_id, network=settings.network)),
        *_limits(settings),
        *_temporary(settings),
        *_mounts(command),
        *_environment(()),
        *("--workdir", SANDBOX_FOLDER, "--entrypoint", "timeout", settings.container_image),
        *("-s", "KILL", str(math.ceil(command.seconds) + _GRACE_SECONDS), *command.arguments),
    ]


def serve_arguments(
    settings: SandboxSettings,
    service: Service,
    private: Sequence[Path],
    name: str,
    user_id: int | None,
) -> list[str]:
    """Without the values of the environment: every user of the host can read arguments. The engine takes them from its
    own environment."""
    assert settings.container_image is not None, "check() comes first"
    readable = (("--mount", f"type=bind,source={path},target={path},readonly") for path in service.readable)
    hidden = hidden_folders([str(path) for path in service.readable], private)
    return [
        *("run", "--interactive", *_isolation(settings, name, user_id, network=service.network)),
        *_limits(settings),
        *_temporary(settings),
        *("--tmpfs", f"{SANDBOX_FOLDER}:rw,nosuid,nodev,mode=1777,size={settings.temporary_bytes}"),
        *(part for mount in readable for part in mount),
        *(part for path in sorted(hidden) for part in ("--tmpfs", f"{path}:rw,nosuid,nodev,mode=0755,size=4096")),
        *_environment(service.environment),
        *("--workdir", SANDBOX_FOLDER, "--entrypoint", "bash", settings.container_image),
        *("-c", _SERVICE_SCRIPT, "bash", *service.arguments),
    ]


def _isolation(settings: SandboxSettings, name: str, user_id: int | None, *, network: bool) -> list[str]:
    """`user_id`: None if the worker is not root."""
    user = os.geteuid() if user_id is None else user_id
    is_rootless_podman = user_id is None and os.path.basename(settings.container_command) == "podman"
    return [
        *("--rm", "--init", "--pull", "never", "--name", name, "--hostname", "sandbox"),
        *(() if network else ("--network", "none")),
        *("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
        *("--user", f"{user}:{user}"),
        *(("--userns", "keep-id") if is_rootless_podman else ()),
    ]


def _environment(names: Collection[str]) -> list[str]:
    """The image has a PATH of its own."""
    own = [f"{key}={value}" for key, value in ENVIRONMENT.items() if key != "PATH" and key not in names]
    return [part for entry in (*own, *names) for part in ("--env", entry)]


def _temporary(settings: SandboxSettings) -> Iterator[str]:
    yield from ("--tmpfs", f"/tmp:rw,nosuid,nodev,mode=1777,size={settings.temporary_bytes}")  # noqa: S108
    yield from ("--shm-size", str(settings.temporary_bytes))


def _limits(settings: SandboxSettings) -> Iterator[str]:
    processes = settings.processes + _OWN_PROCESSES
    yield from ("--pids-limit", str(processes))
    yield from ("--memory", str(settings.memory_bytes), "--memory-swap", str(settings.memory_bytes))
    yield from ("--cpu-shares", "512", "--oom-score-adj", "1000")
    limits = {"fsize": settings.file_bytes, "nofile": OPEN_FILES, "core": 0}
    for name, value in limits.items():
        yield from ("--ulimit", f"{name}={value}:{value}")


def _mounts(command: Command) -> Iterator[str]:
    yield from ("--mount", f"type=bind,source={command.folder},target={SANDBOX_FOLDER}")
    skills = f"{SANDBOX_FOLDER}/{RESERVED}"
    # Owned by root, so that only the mount points in it can be used.
    yield from ("--tmpfs", f"{skills}:rw,nosuid,nodev,mode=0755,size={MOUNT_POINTS_BYTES}")
    for name, source in command.skills.items():
        yield from ("--mount", f"type=bind,source={source},target={skills}/{name},readonly")

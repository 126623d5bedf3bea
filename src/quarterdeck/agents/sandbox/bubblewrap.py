"""Commands in namespaces of their own, by bubblewrap. docs/sandbox.md says what is isolated and what is not."""

import asyncio
import os
import platform
import tempfile
from pathlib import Path

from quarterdeck.agents.sandbox.bwrap_arguments import MADE_UP_FILES, RESERVED, bwrap_arguments, look_at_host
from quarterdeck.agents.sandbox.bwrap_process import BwrapProcess, start_bwrap
from quarterdeck.agents.sandbox.bwrap_program import Program
from quarterdeck.agents.sandbox.descriptors import memory_file
from quarterdeck.agents.sandbox.model import Command, Outcome, SandboxUnavailable
from quarterdeck.core.settings import SandboxSettings, WorkspaceSettings


class Bubblewrap:
    def __init__(self, settings: SandboxSettings, workspace: WorkspaceSettings, data_dir: Path) -> None:
        self._settings = settings
        self._workspace = workspace
        self._view = look_at_host(settings, data_dir, Path.cwd())
        self._program: Program | None = None

    @property
    def user_id(self) -> int | None:
        return self._settings.user_id if os.geteuid() == 0 else None

    async def check(self) -> None:
        if platform.system() != "Linux":
            raise SandboxUnavailable("bubblewrap needs Linux")
        with (
            tempfile.TemporaryDirectory(dir="/var/tmp", prefix="quarterdeck-check-") as folder,
            tempfile.TemporaryFile() as output,
        ):
            if self.user_id is not None:
                os.chown(folder, self.user_id, self.user_id)
            command = Command(
                arguments=["/bin/sh", "-c", "exit 0"], folder=Path(folder), read_only={}, output=output, seconds=30
            )
            outcome = await self.run(command)
            if outcome.exit_code != 0:
                raise SandboxUnavailable(f"bubblewrap: the command `exit 0` ended with {outcome.exit_code}")

    async def run(self, command: Command) -> Outcome:
        process = self._start(command)
        try:
            await process.started()
            process.release()
            async with asyncio.timeout(command.seconds):
                return Outcome(await process.wait())
        except TimeoutError:
            return Outcome(137, f"The command was stopped after {command.seconds:g} s.")
        finally:
            await process.close()

    def _start(self, command: Command) -> BwrapProcess:
        if self._program is None:
            self._program = Program(self.user_id)
        files = {path: memory_file(data) for path, data in MADE_UP_FILES.items()}
        try:
            arguments = bwrap_arguments(self._view, command, self._settings, files, None)
            return start_bwrap(
                self._program, arguments, command.arguments, list(files.values()), command.output, self.user_id
            )
        finally:
            for descriptor in files.values():
                os.close(descriptor)

"""Commands in containers, started by `docker` or `podman`."""

from quarterdeck.agents.sandbox.model import Command, Outcome, SandboxUnavailable
from quarterdeck.core.settings import SandboxSettings, WorkspaceSettings


class Container:
    def __init__(self, settings: SandboxSettings, workspace: WorkspaceSettings) -> None:
        self._settings = settings
        self._workspace = workspace

    @property
    def user_id(self) -> int | None:
        return None

    async def check(self) -> None:
        raise SandboxUnavailable("the container sandbox is not finished")

    async def run(self, command: Command) -> Outcome:
        raise NotImplementedError

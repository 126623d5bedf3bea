"""Which sandbox the settings ask for, whether it works on this host, and which sessions have it."""

from pathlib import Path

from msgspec import UNSET, UnsetType

from quarterdeck.core import errors
from quarterdeck.core.logging import log
from quarterdeck.core.settings import SandboxSettings
from quarterdeck.sandbox.adapter import Sandbox
from quarterdeck.sandbox.bubblewrap import Bubblewrap
from quarterdeck.sandbox.container import Container
from quarterdeck.sandbox.model import SandboxOptions, SandboxUnavailable


async def find_sandbox(settings: SandboxSettings, data_dir: Path) -> Sandbox | None:
    """For processes that run commands. Raises SandboxUnavailable if the settings name a kind that does not work."""
    if settings.kind == "none":
        return None
    sandbox: Sandbox = (Container if settings.kind == "container" else Bubblewrap)(settings, data_dir)
    try:
        await sandbox.check()
    except SandboxUnavailable as fault:
        if settings.kind != "auto":
            raise
        log.warning("sessions have no sandbox: %s", fault)
        return None
    return sandbox


async def why_no_sandbox(settings: SandboxSettings, data_dir: Path) -> str | None:
    """For API processes, which run no commands. None: there is a sandbox. A named kind is believed, since workers check
    it."""
    if settings.kind == "none":
        return "it is turned off by QUARTERDECK_SANDBOX_KIND"
    if settings.kind != "auto":
        return None
    try:
        await Bubblewrap(settings, data_dir).check()
    except SandboxUnavailable as fault:
        log.warning("new sessions have no sandbox: %s", fault)
        return str(fault)
    return None


class SandboxOffer:
    def __init__(self, settings: SandboxSettings) -> None:
        self._default = settings.default
        # Why there is no sandbox. None: there is one. Set when the process starts, before it serves requests.
        self.missing: str | None = None

    def chosen(self, asked: SandboxOptions | UnsetType | None) -> SandboxOptions | None:
        """The sandbox of a new session or version of an agent. UNSET: the default of the server."""
        if asked is UNSET:
            has_sandbox = self.missing is None if self._default is None else self._default
            asked = SandboxOptions() if has_sandbox else None
        self.check(asked)
        return asked

    def check(self, asked: SandboxOptions | None) -> None:
        if asked is not None and self.missing is not None:
            raise errors.invalid(f"sandbox must be null: this server has no sandbox, because {self.missing}.")

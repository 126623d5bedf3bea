"""Which sandbox the settings ask for, and whether it works on this host."""

from pathlib import Path

from quarterdeck.core.logging import log
from quarterdeck.core.settings import SandboxSettings, WorkspaceSettings
from quarterdeck.sandbox.adapter import Sandbox
from quarterdeck.sandbox.bubblewrap import Bubblewrap
from quarterdeck.sandbox.container import Container
from quarterdeck.sandbox.model import SandboxUnavailable


async def find_sandbox(settings: SandboxSettings, workspace: WorkspaceSettings, data_dir: Path) -> Sandbox | None:
    """For processes that run commands. Raises SandboxUnavailable if the settings name a kind that does not work."""
    if settings.kind == "none":
        return None
    sandbox: Sandbox
    if settings.kind == "container":
        sandbox = Container(settings, workspace, data_dir)
    else:
        sandbox = Bubblewrap(settings, workspace, data_dir)
    try:
        await sandbox.check()
    except SandboxUnavailable as fault:
        if settings.kind != "auto":
            raise
        log.warning("sessions have no workspace, because there is no sandbox: %s", fault)
        return None
    return sandbox


async def why_no_sandbox(settings: SandboxSettings, workspace: WorkspaceSettings, data_dir: Path) -> str | None:
    """For API processes, which run no commands. None: there is a sandbox. A named kind is believed, since workers check
    it."""
    if settings.kind == "none":
        return "it is turned off by QUARTERDECK_SANDBOX_KIND"
    if settings.kind != "auto":
        return None
    try:
        await Bubblewrap(settings, workspace, data_dir).check()
    except SandboxUnavailable as fault:
        log.warning("new sessions have no workspace, because there is no sandbox: %s", fault)
        return str(fault)
    return None

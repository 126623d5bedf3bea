"""Tries a sandbox with a command that only looks at its folder."""

import os
import tempfile
from pathlib import Path

from quarterdeck.core.settings import variable
from quarterdeck.sandbox.model import Command, Sandbox, SandboxUnavailable

_SECONDS = 30.0
_SCRIPT = "test -e found && echo 1 > written"


async def try_sandbox(sandbox: Sandbox, name: str) -> None:
    """Raises SandboxUnavailable, which names the sandbox."""
    try:
        with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="quarterdeck-") as folder:
            await _try_in(sandbox, Path(folder), name)
    except OSError as fault:
        raise SandboxUnavailable(f"{name} could not be tried: {fault}") from fault


def _give(folder: Path, user_id: int, name: str) -> None:
    try:
        os.chown(folder, user_id, user_id)
    except OSError as fault:
        # In a container with few users, or without the capabilities of root.
        raise SandboxUnavailable(
            f"{name} needs the user {user_id}, which this root cannot use ({fault.strerror}): run as an ordinary user, "
            f"or set {variable('sandbox', 'user_id')} to a user of this container that has no account"
        ) from fault


async def _try_in(sandbox: Sandbox, folder: Path, name: str) -> None:
    (folder / "found").touch()
    user_id = None if sandbox.users is None else sandbox.users.first
    if user_id is not None:
        _give(folder, user_id, name)
    with tempfile.TemporaryFile() as output:
        arguments = ["/bin/bash", "-c", _SCRIPT]
        outcome = await sandbox.run(
            Command(arguments=arguments, folder=folder, user_id=user_id, read_only={}, output=output, seconds=_SECONDS)
        )
    if outcome.stopped is not None:
        raise SandboxUnavailable(f"{name} does not work: {outcome.stopped}")
    if outcome.exit_code != 0 or not (folder / "written").exists():
        raise SandboxUnavailable(f"{name} does not work: a command could not use its folder")

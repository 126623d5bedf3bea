"""Bounds that the kernel keeps for each process of a sandbox. The first process inside sets them for itself and all
that follow, since a worker in a container often has no right to do it from outside.

The number of processes is counted per user and user namespace (Linux 5.14), so that a sandbox counts only its own.
"""

import math
import os
from collections.abc import Sequence

from quarterdeck.core.agent_settings import SandboxSettings, WorkspaceSettings

# Process 1 of the namespace, which belongs to bubblewrap.
OWN_PROCESSES = 1
OPEN_FILES = 1024
_NICE = 10
_OOM_SCORE = 1000
# Where a cgroup counts too, it shall be the one that is reached: it counts how often.
_BEHIND_CGROUP = 64


def limited(
    arguments: Sequence[str],
    settings: SandboxSettings,
    workspace: WorkspaceSettings,
    seconds: float | None,
    *,
    has_cgroup: bool,
) -> list[str]:
    """A command that sets the limits and becomes the given one. Without `seconds` it may use any processor time."""
    limits = {
        "u": settings.processes + OWN_PROCESSES + (_BEHIND_CGROUP if has_cgroup else 0),
        # In KiB.
        "f": math.ceil(workspace.file_bytes / 1024),
        "n": OPEN_FILES,
        "c": 0,
        "q": 0,
    }
    if seconds is not None:
        # Only effective if the worker stands still: otherwise it ends the command in time.
        limits["t"] = math.ceil(seconds) * (os.cpu_count() or 1) + 1
    if not has_cgroup:
        # In KiB, of one process. It counts the stacks of threads in full, so it is used only where nothing better is.
        limits["d"] = math.ceil(settings.memory_bytes / 1024)
    script = [
        *(f"ulimit -{letter} {value}" for letter, value in limits.items()),
        # Other processes of the host get the processor first, and are killed last when memory runs out.
        f"echo {_OOM_SCORE} > /proc/self/oom_score_adj",
        f'exec nice -n {_NICE} "$@"',
    ]
    return ["/bin/bash", "-c", " && ".join(script), "bash", *arguments]

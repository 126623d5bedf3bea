"""Ends a child process when its supervisor ends, even if the supervisor is killed.

The supervisor holds the write end of a pipe and never writes. Every child waits for the end of file on the read end.
Processes that a child forks, such as the workers of an API server, also wait for their parent.
"""

import multiprocessing
import os
import threading
from multiprocessing.connection import wait

VARIABLE = "QUARTERDECK_LIFELINE_FD"

_descriptor: int | None = None


def is_supervised() -> bool:
    """Whether a supervisor has started this process. Only before `watch`."""
    return VARIABLE in os.environ


def watch() -> None:
    """Call once in each process, after any fork. Does nothing without a supervisor and a parent."""
    global _descriptor
    # Removed from the environment: processes that this one starts do not inherit the descriptor.
    inherited = os.environ.pop(VARIABLE, None)
    if inherited is not None:
        _descriptor = int(inherited)
        os.set_inheritable(_descriptor, False)
    parent = multiprocessing.parent_process()
    ends = [] if _descriptor is None else [_descriptor]
    if parent is not None:
        ends.append(parent.sentinel)
    if ends:
        threading.Thread(target=_end_with, args=(ends,), name="lifeline", daemon=True).start()


def _end_with(ends: list[int]) -> None:
    wait(ends)
    # No cleanup: an orphan no longer holds the lock, port or database that it would need.
    os._exit(1)

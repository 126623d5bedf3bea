"""A child ends when its supervisor does, also when that is killed and can say nothing.

The supervisor holds one end of a pipe and never writes; every child waits for its end of file. Processes that a child
forks (an API server's workers) wait for their parent as well.
"""

import multiprocessing
import os
import threading
from multiprocessing.connection import wait

VARIABLE = "QUARTERDECK_LIFELINE_FD"

_descriptor: int | None = None


def watch() -> None:
    """Call once in each process, after any fork. Without a supervisor and a parent there is nothing to watch."""
    global _descriptor
    # Taken out of the environment: processes that this one starts do not inherit the descriptor.
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
    # Nothing to tidy: whatever an orphan did now would be without the lock, port or database it believes to have.
    os._exit(1)

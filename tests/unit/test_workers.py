"""Granian's parent process and its workers, without a server."""

import multiprocessing
import os
import signal
import time

from quarterdeck.server.workers import Worker


def test_a_worker_that_another_thread_has_reaped_is_not_alive() -> None:
    """Granian waits for a worker in two threads. Python's own answer depends on which of them the kernel wakes first,
    and Granian then reports that it had to kill a worker that had ended."""
    worker = Worker.__new__(Worker)
    worker.inner = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
    worker.inner.start()
    assert worker.is_alive()
    assert worker.inner.pid is not None
    os.kill(worker.inner.pid, signal.SIGTERM)
    os.waitpid(worker.inner.pid, 0)
    assert worker.inner.is_alive(), "as seen by a thread that was not the first"
    assert not worker.is_alive()

"""Starts `qd api` and `qd worker` for tests as forks of one process that has imported them: the imports take three
quarters of the processor time of a start. The commands run as they do in a new Python, in a process of their own.

A parallel run has one fork server for all its processes. Each start is a connection to it: the client sends the
arguments and the environment, gets the process id, and at last the exit code.
"""

import atexit
import gc
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NoReturn

import msgspec
from msgspec import Struct

ADDRESS_VARIABLE = "QUARTERDECK_TEST_FORK_SERVER"
# As the address: every process is a new Python, which imports other sources than the fork server has imported.
NONE = ""
_REQUEST_BYTES = 1 << 20


class Request(Struct):
    arguments: list[str]
    environment: dict[str, str]


def start_qd(arguments: list[str], environment: dict[str, str], stderr: BinaryIO) -> "Process":
    if os.environ.get(ADDRESS_VARIABLE) == NONE:
        return subprocess.Popen([sys.executable, "-m", "quarterdeck", *arguments], env=environment, stderr=stderr)
    return ForkedProcess(arguments, environment, stderr)


class ForkedProcess:
    """As `subprocess.Popen`, as far as tests use it."""

    def __init__(self, arguments: list[str], environment: dict[str, str], stderr: BinaryIO) -> None:
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._connection.connect(_address())
        request = msgspec.json.encode(Request(arguments, environment))
        socket.send_fds(self._connection, [request], [stderr.fileno()])
        self.pid = int(self._connection.recv(16))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        with suppress(TimeoutError, BlockingIOError, subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                self.returncode = int(self._connection.recv(16))
            except (TimeoutError, BlockingIOError) as late:
                raise subprocess.TimeoutExpired("qd", timeout or 0) from late
            self._connection.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        # The fork server may have collected it a moment ago.
        with suppress(ProcessLookupError):
            if self.poll() is None:
                os.kill(self.pid, number)

    def __del__(self) -> None:
        self._connection.close()

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


Process = subprocess.Popen[bytes] | ForkedProcess


def _address() -> str:
    if ADDRESS_VARIABLE not in os.environ:
        start()
    return os.environ[ADDRESS_VARIABLE]


def start() -> None:
    """For this process and those that inherit its environment. It ends with this process."""
    folder = tempfile.mkdtemp(prefix="qd-fork-")
    os.environ[ADDRESS_VARIABLE] = str(Path(folder, "socket"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(os.environ[ADDRESS_VARIABLE])
        listener.listen(64)
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.fork_server", str(listener.fileno())],
            stdin=subprocess.PIPE,
            pass_fds=[listener.fileno()],
        )
    assert process.stdin is not None
    # The server ends when it reads the end of its input.
    atexit.register(process.wait)
    atexit.register(process.stdin.close)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)


def serve(listener: socket.socket) -> None:
    # What the commands import, some of it at the first use.
    import anthropic  # noqa: F401
    import mcp.client.client  # noqa: F401
    import openai  # noqa: F401
    import pydantic_ai  # noqa: F401

    import quarterdeck.app
    import quarterdeck.cli.serve
    import quarterdeck.worker.process  # noqa: F401

    gc.freeze()
    running: dict[int, socket.socket] = {}
    woken, waking = socket.socketpair()
    waking.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waking.fileno())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with selectors.DefaultSelector() as selector:
        for source in (listener, woken, sys.stdin):
            selector.register(source, selectors.EVENT_READ)
        while True:
            sources = [key.fileobj for key, _ in selector.select()]
            if sys.stdin in sources:
                return
            if woken in sources:
                woken.recv(4096)
                _report_ended(running)
            if listener in sources:
                connection, _ = listener.accept()
                pid = _fork(connection)
                running[pid] = connection


def _fork(connection: socket.socket) -> int:
    data, descriptors, _, _ = socket.recv_fds(connection, _REQUEST_BYTES, 1)
    request = msgspec.json.decode(data, type=Request)
    pid = os.fork()
    if pid == 0:
        _run(request, descriptors[0])
    os.close(descriptors[0])
    connection.send(str(pid).encode())
    return pid


def _report_ended(running: dict[int, socket.socket]) -> None:
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            with running.pop(pid) as connection, suppress(BrokenPipeError):
                connection.send(str(os.waitstatus_to_exitcode(status)).encode())


def _run(request: Request, stderr: int) -> NoReturn:
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(stderr, 2)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        os.environ.clear()
        os.environ.update(request.environment)
        sys.argv = ["qd", *request.arguments]
        from quarterdeck.__main__ import main

        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as given:
        serve(given)

"""The listening sockets, one for each API worker. They share their port among themselves (SO_REUSEPORT) and with no
other server of the same user: an address in use must not pass unnoticed.

A supervisor binds once and hands the sockets down: while a worker or the whole API starts again, callers wait
instead of being refused.
"""

import errno
import os
import socket
import sys
import time
from typing import Any

VARIABLE = "QUARTERDECK_LISTENER_FDS"
BACKLOG = 1024


class ListenError(Exception):
    """One line for the person at the terminal."""


def listen(host: str, port: int, workers: int, patience_seconds: float = 0.0) -> list[socket.socket]:
    """`patience_seconds`: how long the processes of a killed predecessor may take to let go of the address."""
    deadline = time.monotonic() + patience_seconds
    while True:
        try:
            return _bind(host, port, workers)
        except OSError as fault:
            in_use = fault.errno == errno.EADDRINUSE
            if in_use and time.monotonic() < deadline:
                time.sleep(0.05)
                continue
            reason = "the address is already in use" if in_use else fault.strerror or str(fault)
            raise ListenError(f"cannot listen on {address(host, port)}: {reason}") from fault


def _bind(host: str, port: int, workers: int) -> list[socket.socket]:
    family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    first = _listening_socket(family, place, shared=False)
    sockets = [first]
    # With one queue the quickest worker takes most connections and keeps them; Linux deals them out evenly among
    # queues. The first socket had to get the address alone; only now may its own kind join it.
    if sys.platform == "linux" and workers > 1:
        first.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        place = first.getsockname()
        sockets += [_listening_socket(family, place, shared=True) for _ in range(workers - 1)]
    return sockets


def _listening_socket(family: int, place: tuple[Any, ...], *, shared: bool) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(shared))
        # Accepted connections inherit it: small answers must not wait for more.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind(place)
        # At once: on Linux two sockets may be bound to one address as long as neither listens.
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def inherited() -> list[socket.socket]:
    """What a supervisor handed down. Taken out of the environment: further processes do not inherit them."""
    sockets = [socket.socket(fileno=int(part)) for part in os.environ.pop(VARIABLE, "").split(",") if part]
    for listener in sockets:
        listener.set_inheritable(False)
    return sockets


def address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

"""The address of the API, checked before anything is started on it.

The API binds the port once for each worker, with SO_REUSEPORT. A second server of the same user could bind it too and
would get a part of the connections, so the check here binds without that option.
"""

import errno
import socket
import time

# The workers of a killed server release the port within milliseconds; on a busy machine it takes longer.
RELEASE_SECONDS = 2.0


class AddressError(Exception):
    """The address cannot be used. The message is one line for the terminal."""


def free_address(host: str, port: int, wait_seconds: float = RELEASE_SECONDS) -> tuple[str, int]:
    """The numeric address and the port to bind. Port 0 becomes a free port."""
    deadline = time.monotonic() + wait_seconds
    while True:
        try:
            return _bind_once(host, port)
        except OSError as fault:
            in_use = fault.errno == errno.EADDRINUSE
            if in_use and time.monotonic() < deadline:
                time.sleep(0.05)
                continue
            reason = "the address is already in use" if in_use else fault.strerror or str(fault)
            raise AddressError(f"cannot listen on {address_text(host, port)}: {reason}") from fault


def _bind_once(host: str, port: int) -> tuple[str, int]:
    family, _, _, _, socket_address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
        0
    ]
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(socket_address)
        # On Linux two sockets with SO_REUSEADDR can be bound to one address until one of them listens.
        probe.listen()
        address, bound_port = probe.getsockname()[:2]
        return address, bound_port


def address_text(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

"""HTTP by hand over a socket: what no client library would send, and every byte of what comes back."""

import json
import socket
import time
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from msgspec import Struct

# Only a fault takes this long.
PATIENCE_SECONDS = 30.0


class RawAnswer(Struct, frozen=True):
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        found = [value for key, value in self.headers if key == name.lower()]
        assert len(found) <= 1, f"{name} is sent twice"
        return found[0] if found else None

    def error(self) -> tuple[int, str]:
        """Status and code, after checking that the body is the envelope and nothing else."""
        body: dict[str, Any] = json.loads(self.body)
        assert set(body) == {"error"}, body
        assert set(body["error"]) == {"code", "message"}, body
        assert self.header("content-type") == "application/json"
        assert self.header("x-request-id")
        code: str = body["error"]["code"]
        return self.status, code


class Wire:
    """One connection."""

    def __init__(self, port: int, receive_buffer_bytes: int | None = None) -> None:
        self._socket = socket.socket()
        if receive_buffer_bytes is not None:
            # Before it connects: the other side is told of it then.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self._socket.connect(("127.0.0.1", port))
        self._socket.settimeout(PATIENCE_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def send_what_it_takes(self, data: bytes) -> None:
        """To a server that may close before it has taken all."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self.send(data)

    def end_sending(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def answer(self, *, to_head: bool = False) -> RawAnswer:
        """The next answer, read to the byte: what follows it stays for the next call."""
        while b"\r\n\r\n" not in self._received:
            self._receive()
        head, _, self._received = self._received.partition(b"\r\n\r\n")
        status_line, *lines = head.decode("latin-1").split("\r\n")
        headers = [(key.lower(), value.strip()) for key, _, value in (line.partition(":") for line in lines)]
        status = int(status_line.split(" ")[1])
        if status == 100:
            return RawAnswer(status, headers, b"")
        length = 0 if to_head else int(dict(headers)["content-length"])
        while len(self._received) < length:
            self._receive()
        body, self._received = self._received[:length], self._received[length:]
        return RawAnswer(status, headers, body)

    def take(self, most_bytes: int) -> None:
        """What is there, for an answer that is read later."""
        self._received += self._socket.recv(most_bytes)

    def rest(self, bytes_at_once: int = 65536, pause_seconds: float = 0.0) -> bytes:
        """All that comes until the server ends the connection."""
        with suppress(ConnectionResetError):
            while data := self._socket.recv(bytes_at_once):
                self._received += data
                time.sleep(pause_seconds)
        return self._received

    def read_until(self, mark: bytes) -> bytes:
        while mark not in self._received:
            self._receive()
        return self._received

    def is_closed(self, within_seconds: float = PATIENCE_SECONDS) -> bool:
        """Whether the server ends the connection without another byte."""
        self._socket.settimeout(within_seconds)
        try:
            return self._received == b"" and self._socket.recv(1) == b""
        except TimeoutError:
            return False
        except ConnectionResetError:
            return True
        finally:
            self._socket.settimeout(PATIENCE_SECONDS)

    def is_silent(self, seconds: float) -> bool:
        """Whether nothing comes for a while."""
        self._socket.settimeout(seconds)
        began = time.monotonic()
        try:
            self._received += self._socket.recv(1)
        except TimeoutError:
            return True
        finally:
            self._socket.settimeout(PATIENCE_SECONDS)
        return time.monotonic() - began >= seconds

    def _receive(self) -> None:
        data = self._socket.recv(65536)
        assert data, f"the connection ended in the middle of an answer: {self._received!r}"
        self._received += data


def request(method: str, path: str, *headers: str | bytes, body: bytes = b"", host: bool = True) -> bytes:
    """Header lines are sent as they are given, so that a test can send wrong ones."""
    lines = [f"{method} {path} HTTP/1.1".encode()]
    lines += [b"Host: quarterdeck.test"] if host else []
    lines += [header if isinstance(header, bytes) else header.encode() for header in headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def exchange(port: int, data: bytes) -> RawAnswer:
    with Wire(port) as wire:
        wire.send(data)
        return wire.answer()


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}".encode() + b"\r\n" + data + b"\r\n"

"""The load: wrk, which needs so little itself that what it measures is the system."""

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from bench.peers.system import Request

# What wrk asks of a script: the bytes of the next request, and at the end a line that can be read.
_SCRIPT = """local requests = {%s}
local next = 0
request = function()
  next = next %% #requests + 1
  return requests[next]
end
done = function(summary, latency)
  local errors = summary.errors
  local lost = errors.connect + errors.read + errors.write + errors.timeout
  io.write(string.format("bench %%d %%d %%d %%d %%d %%d\\n", summary.requests, summary.duration, errors.status, lost,
    latency:percentile(50), latency:percentile(99)))
end
"""


class Load(Struct, frozen=True):
    accepted: int
    accepted_per_second: float
    refused: int
    # Connections or answers that did not come.
    lost: int
    median_ms: float
    p99_ms: float


def wrk() -> str:
    program = shutil.which("wrk")
    if program is None:
        raise SystemExit("The load comes from wrk, and there is none here. Debian has it: apt install wrk")
    return program


async def load(port: int, requests: Sequence[Request], connections: int, seconds: float, folder: Path) -> Load:
    script = folder / "wrk.lua"
    script.write_text(_SCRIPT % ",\n".join(lua(raw(request)) for request in requests))
    arguments = ["-t1", f"-c{connections}", f"-d{seconds:g}s", "--timeout", "30s", "-s", str(script)]
    process = await asyncio.create_subprocess_exec(
        wrk(), *arguments, f"http://127.0.0.1:{port}/", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    return read(output.decode())


def read(output: str) -> Load:
    """What the script's last line says. Times there are in microseconds."""
    for line in output.splitlines():
        if line.startswith("bench "):
            asked, took, refused, lost, median, p99 = map(int, line.split()[1:])
            accepted = asked - refused
            return Load(accepted, accepted * 1_000_000 / took, refused, lost, median / 1000, p99 / 1000)
    raise RuntimeError(f"wrk said: {output}")


def raw(request: Request) -> bytes:
    headers = {
        "Host": "127.0.0.1",
        "Content-Type": request.media_type,
        "Content-Length": str(len(request.body)),
        **request.headers,
    }
    lines = [f"POST {request.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + request.body


def lua(raw: bytes) -> str:
    """A string of Lua's that has only harmless characters in it."""
    return '"' + "".join(chr(byte) if chr(byte).isalnum() and byte < 128 else f"\\{byte:03d}" for byte in raw) + '"'

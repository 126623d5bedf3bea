"""Opens thousands of event streams in a process of its own, and opens each one again when it ends.

In the process of a test the flood would delay the requests of the neighbour before they are sent.
"""

import asyncio
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

# A refused client comes back after the time in Retry-After, a little sooner or later than the others.
_PAUSE_SECONDS = 5.0
_PATIENCE_SECONDS = 60.0
_READY = b"ready\n"


@asynccontextmanager
async def stream_flood(port: int, request: bytes, streams: int) -> AsyncIterator[None]:
    """An attack: every stream has had an answer when this is entered."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __name__, str(port), str(streams), request.hex()), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        assert await asyncio.wait_for(process.stdout.readline(), _PATIENCE_SECONDS) == _READY
        yield
        assert process.returncode is None, "the flood has ended by itself"
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _flood(port: int, streams: int, request: bytes) -> None:
    answered: set[int] = set()
    all_answered = asyncio.Event()

    async def follow_again_and_again(number: int) -> None:
        while True:
            with suppress(OSError):
                await follow(number)
            await asyncio.sleep(_PAUSE_SECONDS * random.uniform(0.5, 1.5))

    async def follow(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(request)
            while await reader.read(4096):
                answered.add(number)
                if len(answered) == streams:
                    all_answered.set()
        finally:
            writer.close()

    async with asyncio.TaskGroup() as group:
        for number in range(streams):
            group.create_task(follow_again_and_again(number))
        await all_answered.wait()
        sys.stdout.buffer.write(_READY)
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_flood(int(sys.argv[1]), int(sys.argv[2]), bytes.fromhex(sys.argv[3])))

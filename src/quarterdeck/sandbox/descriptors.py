"""Waiting for descriptors, and files in memory that are handed to another process."""

import asyncio
import os
from collections.abc import Coroutine
from typing import Any


async def readable(descriptor: int) -> None:
    """Waits for data or the end of a pipe, or for the end of the process of a pidfd."""
    loop = asyncio.get_running_loop()
    found = asyncio.Event()
    loop.add_reader(descriptor, found.set)
    try:
        await found.wait()
    finally:
        loop.remove_reader(descriptor)


def memory_file(data: bytes) -> int:
    descriptor = os.memfd_create("sandbox", os.MFD_CLOEXEC)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


async def finish(work: Coroutine[Any, Any, None]) -> None:
    """Runs to its end, however often the caller is cancelled meanwhile."""
    task = asyncio.create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as fault:
            cancelled = fault
    task.result()
    if cancelled is not None:
        raise cancelled

"""Looks up names in threads of its own: slow lookups delay nothing else. One workspace holds at most half of the
threads: a name server may take as long as it likes to answer."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from ipaddress import ip_address
from uuid import UUID

from quarterdeck.core.slots import Slots
from quarterdeck.outbound.rules import IpAddress

# Returns the addresses of a host, in the order to try them. Raises OSError.
Resolve = Callable[[str, int], Awaitable[list[IpAddress]]]
# For a workspace.
ResolveFor = Callable[[UUID], Resolve]

# For a thread. Callers have shorter timeouts of their own.
_WAIT_SECONDS = 120.0


class Resolver:
    def __init__(self, threads: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="resolve")
        self._slots = Slots(threads, max(1, threads // 2))

    def for_workspace(self, workspace_id: UUID) -> Resolve:
        return partial(self._look_up, workspace_id)

    async def _look_up(self, workspace_id: UUID, host: str, port: int) -> list[IpAddress]:
        await self._slots.take(workspace_id, _WAIT_SECONDS)
        looking = asyncio.get_running_loop().run_in_executor(
            self._threads, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        )

        def ended(_: object) -> None:
            self._slots.release(workspace_id)
            # Read here, in case the caller has left.
            looking.cancelled() or looking.exception()

        looking.add_done_callback(ended)
        # The thread goes on after the caller has left, and keeps its slot: it cannot be stopped.
        found = await asyncio.shield(looking)
        return [ip_address(address[0]) for *_, address in found]

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

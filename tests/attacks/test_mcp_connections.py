"""A workspace whose servers accept connections and never answer, and whose names never resolve. The servers of its
neighbours can be used all the same."""

import asyncio
import socket
from threading import Event
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from quarterdeck.connections.mcp.model import McpFailure
from quarterdeck.outbound.http_client import Resolver
from tests.mcp import hostile_server as hostile
from tests.mcp.targets import PATIENT, call, connections, http_target

_CONNECTIONS = 6


async def test_hanging_connections_of_one_workspace_leave_room_for_another() -> None:
    async with (
        hostile.hostile_server({"/hang": hostile.hang}) as server,
        connections(msgspec.structs.replace(PATIENT, connections=_CONNECTIONS)) as found,
    ):
        attacker, neighbour = uuid4(), uuid4()

        async def hang() -> str:
            return await call(found, http_target(server.url("/hang"), workspace_id=attacker), uuid4(), "tool")

        hanging = [asyncio.create_task(hang()) for _ in range(_CONNECTIONS)]
        refused, waiting = await asyncio.wait(hanging, return_when=asyncio.FIRST_EXCEPTION)
        with pytest.raises(McpFailure, match="All 3 connections of a workspace"):
            await refused.pop()
        for _ in range(_CONNECTIONS):
            target = http_target(server.url("/polite"), workspace_id=neighbour)
            assert await call(found, target, uuid4(), "tool") == "polite"
        for task in waiting:
            task.cancel()
        await asyncio.wait(hanging)


async def test_names_that_never_resolve_leave_threads_for_another_workspace(monkeypatch: pytest.MonkeyPatch) -> None:
    stop, looked_up = Event(), []

    def look_up(host: str, port: int, **_: Any) -> list[Any]:
        looked_up.append(host)
        if host == "hanging.test":
            stop.wait()
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("192.0.2.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    resolver = Resolver(4)
    attacker, neighbour = resolver.for_workspace(uuid4()), resolver.for_workspace(uuid4())
    try:
        for _ in range(3):
            hanging = [asyncio.ensure_future(attacker("hanging.test", 443)) for _ in range(4)]
            await asyncio.sleep(0)
            assert [str(address) for address in await neighbour("found.test", 443)] == ["192.0.2.1"]
            # Leaving early gives no thread back.
            for lookup in hanging:
                lookup.cancel()
            await asyncio.wait(hanging)
        assert looked_up.count("hanging.test") == 2
    finally:
        stop.set()
        resolver.close()

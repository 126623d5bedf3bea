"""What Aegra and LangGraph's own server have in common: threads and runs over the same routes, and the same graph."""

import asyncio
import json
from pathlib import Path

import httpx

from bench.peers.system import APPS, Request, System

_AT_ONCE = 16


class AgentProtocolServer(System):
    async def new_sessions(self, count: int) -> list[str]:
        gate = asyncio.Semaphore(_AT_ONCE)

        async def one() -> str:
            async with gate:
                answer = await self.client.post("/threads", json={})
                answer.raise_for_status()
                return str(answer.json()["thread_id"])

        return await asyncio.gather(*(one() for _ in range(count)))

    def turn(self, session: str, text: str) -> Request:
        messages = {"messages": [{"role": "user", "content": text}]}
        body = {"assistant_id": "bench", "input": messages, "multitask_strategy": "enqueue"}
        return Request(f"/threads/{session}/runs", json.dumps(body).encode())

    def said(self, answer: httpx.Response) -> str:
        return str(answer.json()["status"])

    async def record(self, session: str) -> str:
        return (await self.get(f"/threads/{session}/state")).text

    def write_graphs(self, file: Path) -> None:
        file.write_text(json.dumps({"dependencies": ["."], "graphs": {"bench": f"{APPS / 'graph.py'}:graph"}}))

"""Two processes that serve the tools of a session, while API and PostgreSQL are killed between call and answer."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest

from tests.client.test_serve_tools import call, new_session
from tests.fault.postgres import own_postgres
from tests.workers import eventually, log_of, working
from tests.world import World, serving

NAMES = {"one": "sync", "two": "async"}


@contextmanager
def tool_process(*arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen([sys.executable, "-m", "tests.client.tool_process", *arguments])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def calls(folder: Path, name: str) -> list[str]:
    file = folder / name
    return file.read_text().split() if file.exists() else []


async def both_work_on(folder: Path, number: int) -> None:
    async def look() -> bool:
        return all(str(number) in calls(folder, name) for name in NAMES)

    await eventually(look)


async def has_succeeded(world: World, run_id: str) -> bool:
    """The server may still answer 503 after a fault."""
    return bool((await world.get(f"/v1/runs/{run_id}")).json().get("state") == "succeeded")


@pytest.mark.long
async def test_api_and_database_are_killed_between_call_and_answer(tmp_path: Path) -> None:
    with own_postgres("tools") as postgres, ExitStack() as stack:
        api = stack.enter_context(ExitStack())
        server = api.enter_context(serving(postgres.url, tmp_path))
        stack.enter_context(working(postgres.url, tmp_path))
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
            world = await World.create(postgres.url, http)
            session_id = await new_session(world, "work")
            at = (server.url, world.key, session_id, str(tmp_path))
            processes = [stack.enter_context(tool_process(kind, *at, name)) for name, kind in NAMES.items()]
            for number, fault in enumerate(("none", "api", "postgres")):
                run_id = await call(world, session_id, f'work {{"number": {number}}}')
                await both_work_on(tmp_path, number)
                if fault == "api":
                    os.kill(server.pid, signal.SIGKILL)
                    api.close()
                elif fault == "postgres":
                    await asyncio.to_thread(postgres.stop, signal.SIGQUIT)
                (tmp_path / f"go-{number}").touch()
                # Both try to send their answer meanwhile.
                await asyncio.sleep(1)
                if fault == "api":
                    stack.enter_context(serving(postgres.url, tmp_path, SERVER_PORT=server.port))
                elif fault == "postgres":
                    await asyncio.to_thread(postgres.start)
                await eventually(partial(has_succeeded, world, run_id))
            assert [process.poll() for process in processes] == [None, None]
            log = await log_of(world, session_id)
    for name in NAMES:
        assert calls(tmp_path, name) == ["0", "1", "2"], "each process carries out each call once"
    answers = [entry["data"]["resolution"]["result"] for entry in log if entry["type"] == "action.resolved"]
    assert [answer.split(" by ")[0] for answer in answers] == ["0", "1", "2"]
    assert [entry["data"]["text"] for entry in log if entry["type"] == "tool.result"] == answers

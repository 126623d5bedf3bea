"""Random sequences of everything that a session can do (docs/decisions/0099), and the script of one."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.model.features.command import Options, search
from tests.model.features.machine import Failure, Machine, Sequence
from tests.model.features.script import script_of
from tests.model.features.service import running_service
from tests.model.features.steps import (
    Answer,
    ChangeSession,
    Fork,
    Limits,
    NewAgent,
    NewSession,
    PushVersion,
    Resolve,
    Submit,
    Version,
)
from tests.workers import working
from tests.world import PATIENT, World, free_port, serving

# About 20 s.
SEQUENCES = 40
SCRIPT_SECONDS = 120

EVERYTHING = Sequence(
    2_500,
    "trim",
    [
        NewAgent(Version(Limits(session=18))),
        NewSession(agent=0),
        Submit(0, file="text"),
        Answer(0, ("book", "current_time")),
        ChangeSession(0, policy={"add_note": "deny"}),
        Resolve(0, "tool_result", "small"),
        PushVersion(0, Version(Limits(session=18))),
        Resolve(0, "budget", "raise", more=100),
        Fork(0, 3),
        Answer(0),
    ],
)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_no_promise_is_broken(database_url: str, tmp_path: Path) -> None:
    found, machine = asyncio.run(search(database_url, tmp_path, Options("test", sequences=SEQUENCES), print))
    assert machine.sequences == SEQUENCES
    assert not found, "\n".join(script_of(one.failure) for one in found)


async def script_of_everything(database_url: str, data_dir: Path) -> str:
    async with running_service(database_url, data_dir) as service:
        broken, world = await Machine(service).repeat(EVERYTHING)
    assert broken is None
    return script_of(Failure("none", EVERYTHING, "nothing_is_wrong", "It is an example.", world.script))


@pytest.mark.long
async def test_a_printed_script_runs(database_url: str, tmp_path: Path) -> None:
    script = tmp_path / "script.sh"
    script.write_text(await script_of_everything(database_url, tmp_path))
    port = free_port()
    provider = subprocess.Popen([sys.executable, "-m", "tests.model.features.provider", "--port", str(port)])
    settings = {"MODEL_OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1", **PATIENT}
    try:
        with serving(database_url, tmp_path, **settings) as server, working(database_url, tmp_path, **settings):
            async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
                world = await World.create(database_url, http)
                given = {"QD_URL": server.url, "QD_KEY": world.key, "PROVIDER": f"http://127.0.0.1:{port}"}
                done = await asyncio.to_thread(_run, script, given)
                assert done.returncode == 0, done.stderr
                runs = await world.fetch("SELECT state FROM runs WHERE workspace_id = %s", world.workspace_id)
                assert runs == [("succeeded",)], done.stderr
    finally:
        provider.terminate()
        provider.wait()


def _run(script: Path, given: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | given | {"PAUSE": "2"}
    return subprocess.run(
        ["sh", str(script)], env=environment, capture_output=True, text=True, timeout=SCRIPT_SECONDS, check=False
    )

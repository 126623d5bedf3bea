"""`qd serve` in a folder that does not exist yet: PostgreSQL is set up, tables are made, a key is minted."""

import re
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter

from bench.case import BenchError, Case, Ground, Round, Taken
from bench.server import clean_environment, free_port, started, until_up

_KEY = re.compile(r"QD_KEY=(\S+)")


@asynccontextmanager
async def nothing(ground: Ground) -> AsyncIterator[Path]:
    yield ground.folder


async def us(folder: Path, one: Round) -> Taken:
    data, log, port = folder / f"cold-{one.number}", folder / f"cold-{one.number}.log", free_port()
    command = [sys.executable, "-m", "quarterdeck", "serve", "--port", str(port), "--data", str(data)]
    began = perf_counter()
    with started(command, clean_environment(), log) as process:
        await until_up(port, process, "/healthz")
        healthy = perf_counter() - began
        await until_up(port, process, "/v1/sessions", _key(log.read_text()))
        authorised = perf_counter() - began
    shutil.rmtree(data)
    return Taken(authorised, notes={"/healthz, s": healthy})


def _key(written: str) -> str:
    found = _KEY.search(written)
    if found is None:
        raise BenchError("`qd serve` has shown no key")
    return found[1]


CASE = Case(
    title="cold `qd serve` on a new folder → first authorised 200",
    unit="s",
    stage=nothing,
    us=us,
    rounds=3,
    warm_up=False,
)

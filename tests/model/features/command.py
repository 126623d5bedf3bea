"""`make model`: random sequences of everything that a session can do, until the time is over. For each promise that is
broken, the first sequence that broke it is shrunk and written to a folder as a script."""

import argparse
import secrets
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import uvloop
from msgspec import Struct

from tests.conftest import SHARED_POSTGRES
from tests.fault.postgres import running_postgres
from tests.model.features.machine import Failure, Machine
from tests.model.features.planted import BUGS, plant
from tests.model.features.script import script_of
from tests.model.features.service import running_service
from tests.world import migrate_for_tests


class Found(Struct, frozen=True):
    failure: Failure
    # Since the start, without shrinking.
    seconds: float
    sequences: int


class Options(Struct, frozen=True):
    seed: str
    seconds: float = float("inf")
    sequences: float = float("inf")
    # The promise after which the search ends. None: it goes on.
    until: str | None = None
    shrinks: bool = True


async def search(
    url: str, data_dir: Path, options: Options, tell: Callable[[str], None]
) -> tuple[list[Found], Machine]:
    """The first sequence that broke each promise."""
    found: dict[str, Found] = {}
    async with running_service(url, data_dir) as service:
        machine = Machine(service)
        began = time.monotonic()
        shrinking = 0.0
        while options.until not in found and machine.sequences < options.sequences:
            if time.monotonic() - began - shrinking > options.seconds:
                break
            failure = await machine.run(f"{options.seed}-{machine.sequences + 1}")
            if machine.sequences % 200 == 0:
                tell(f"{time.monotonic() - began:.0f} s, {machine.sequences} sequences")
                await service.clean_up()
            if failure is None or failure.promise in found:
                continue
            seconds, start = time.monotonic() - began - shrinking, time.monotonic()
            if options.shrinks:
                failure = await machine.shrink(failure)
                shrinking += time.monotonic() - start
            found[failure.promise] = Found(failure, seconds, machine.sequences)
            tell(f"{seconds:.1f} s, seed {failure.seed}: {failure.promise}: {failure.reason[:300]}")
    return list(found.values()), machine


def main() -> int:
    parser = argparse.ArgumentParser(prog="make model", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long (default: 5)")
    parser.add_argument("--seed", default=None, help="of an earlier run, to repeat it")
    parser.add_argument("--plant", choices=sorted(BUGS), help="a bug that must be found")
    parser.add_argument("--folder", type=Path, default=Path("build/model"), help="for scripts (default: build/model)")
    given = parser.parse_args()
    tell = partial(print, flush=True)
    seed = given.seed or str(secrets.randbelow(1_000_000))
    bug = BUGS.get(given.plant)
    tell(f"MODEL_SEED={seed} MINUTES={given.minutes:g} make model")
    with ExitStack() as stack:
        url = stack.enter_context(running_postgres("model", **SHARED_POSTGRES)).url
        data_dir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="qd-model-")))
        migrate_for_tests(url)
        if bug is not None:
            plant(bug, url)
        options = Options(seed, given.minutes * 60, until=None if bug is None else bug.promise, shrinks=bug is None)
        began = time.monotonic()
        found, machine = uvloop.run(search(url, data_dir, options, tell))
        seconds = time.monotonic() - began
    tell(f"{machine.sequences} sequences, {machine.steps} steps, {seconds:.0f} s, {len(found)} promises broken")
    given.folder.mkdir(parents=True, exist_ok=True)
    for one in found:
        path = given.folder / f"{one.failure.promise}.sh"
        path.write_text(script_of(one.failure))
        tell(f"{path}: {len(one.failure.sequence.steps)} steps")
    if bug is not None:
        return int(all(one.failure.promise != bug.promise for one in found))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())

"""Every hostile archive is refused, for the right reason, within a second and 64 MiB."""

import io
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from quarterdeck.core.settings import BundleSettings
from quarterdeck.skills.archive import read_bundle
from quarterdeck.skills.model import BundleError
from tests.unit.archives import empty_deflate_blocks
from tests.unit.hostile import HOSTILE, LIMITS, MIB

SECONDS = 1.0
MEMORY_BYTES = 64 * MIB

# Reads the archives named on its input from the disk, as a push does, and prints after each by how much the process has
# grown. VmHWM, because a new process inherits ru_maxrss from its parent. The last figure is a control: 80 MiB in use.
GROWTH = """
import json, re, sys
from quarterdeck.core.settings import BundleSettings
from quarterdeck.skills.archive import read_bundle
from quarterdeck.skills.model import BundleError

def peak():
    with open("/proc/self/status") as status:
        return int(re.search(r"VmHWM:\\s+([0-9]+) kB", status.read())[1]) * 1024

before, growth = peak(), {}
for path in sys.stdin.read().split():
    with open(path, "rb") as source:
        try:
            read_bundle(source, BundleSettings())
        except BundleError:
            growth[path] = peak() - before
used = b"x" * (80 << 20)
growth["control"] = peak() - before
json.dump(growth, sys.stdout)
"""


def refusal(archive: bytes, limits: BundleSettings = LIMITS) -> BundleError:
    with pytest.raises(BundleError) as refused:
        read_bundle(io.BytesIO(archive), limits)
    return refused.value


@pytest.mark.parametrize("name", HOSTILE)
def test_is_refused_in_time_and_for_its_reason(name: str) -> None:
    build, reason = HOSTILE[name]
    archive = build()
    # CPU time: other work on the machine must not count.
    start = time.process_time()
    fault = refusal(archive)
    assert time.process_time() - start < SECONDS
    with pytest.raises(BundleError, match=reason):
        raise fault
    assert len(fault.message) < 1500
    assert fault.message.isprintable()
    fault.message.encode()


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process is read from Linux's /proc")
def test_the_process_does_not_grow(tmp_path: Path) -> None:
    """The resident size includes what tracemalloc cannot see: libyaml and fragmentation. One process reads all."""
    paths = {}
    for number, (name, (build, _)) in enumerate(HOSTILE.items()):
        path = tmp_path / f"{number}.tar.gz"
        path.write_bytes(build())
        paths[str(path)] = name
    run = subprocess.run(
        [sys.executable, "-c", GROWTH], input="\n".join(paths), capture_output=True, text=True, check=True
    )
    growth = json.loads(run.stdout)
    assert growth.pop("control") > MEMORY_BYTES
    assert growth.keys() == paths.keys()
    assert {paths[path]: grown for path, grown in growth.items() if grown >= MEMORY_BYTES} == {}


def test_number_of_hostile_archives() -> None:
    assert len(HOSTILE) >= 100


def test_processor_time_is_counted() -> None:
    hurried = BundleSettings(unpacking_seconds=0.01)
    start = time.process_time()
    assert "processor time" in refusal(empty_deflate_blocks(8 * MIB), hurried).message
    assert time.process_time() - start < 0.5


def test_a_fault_names_the_entry_and_the_line() -> None:
    fault = refusal(HOSTILE["path: right-to-left override"][0]())
    assert (fault.path, fault.line) == (r"a\u202etxt.exe", None)
    fault = refusal(HOSTILE["yaml: anchor"][0]())
    assert (fault.path, fault.line) == ("SKILL.md", 4)
    assert fault.message == f'"SKILL.md", line 4: {fault.reason}'

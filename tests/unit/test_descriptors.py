"""How many descriptors an API server allows itself. In processes of their own: a limit, once lowered, stays."""

import subprocess
import sys

import pytest

LIMITED = """
import logging, resource, sys
from quarterdeck.processes.api_server import allow_descriptors
logging.basicConfig(format="%(levelname)s")
soft, hard, needed = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
allow_descriptors(needed)
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.parametrize(
    ("soft", "hard", "needed", "allowed", "warned"),
    [
        (100, 200, 100, 100, ""),
        (100, 200, 101, 200, ""),
        (100, 200, 200, 200, ""),
        (100, 200, 201, 200, "WARNING\n"),
        (200, 200, 201, 200, "WARNING\n"),
    ],
)
def test_the_limit_is_raised_where_it_is_too_low(soft: int, hard: int, needed: int, allowed: int, warned: str) -> None:
    command = [sys.executable, "-c", LIMITED, str(soft), str(hard), str(needed)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (ended.stdout, ended.stderr) == (f"{allowed}\n", warned)

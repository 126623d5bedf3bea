"""The limit of open files of an API server. In processes of their own, because a lowered limit cannot be raised."""

import subprocess
import sys

import pytest

LIMITED = """
import logging, resource, sys
from quarterdeck.server.api_server import raise_descriptor_limit
logging.basicConfig(format="%(levelname)s")
soft, hard, needed = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
raise_descriptor_limit(needed)
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.long
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
def test_the_limit_is_raised_if_it_is_too_low(soft: int, hard: int, needed: int, allowed: int, warned: str) -> None:
    command = [sys.executable, "-c", LIMITED, str(soft), str(hard), str(needed)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (ended.stdout, ended.stderr) == (f"{allowed}\n", warned)

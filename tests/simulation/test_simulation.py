"""The network of the simulation, and the commands of the docs. `make simulation` runs the simulation itself: it takes
minutes."""

import re
import shlex
import subprocess
import sys

import pytest

from tests.pages import ROOT
from tests.simulation.command import parse_arguments
from tests.simulation.network import isolated, why_not

# Run in private namespaces. A server on one host is asked by the clients, who are at the switch.
_CUT_HEALED_LOST = """
import socket, subprocess, sys, time
from tests.simulation.network import Host, build_network, remove_network

def connects(seconds):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            socket.create_connection((host.address, 8000), timeout=1).close()
            return True
        except OSError:
            time.sleep(0.05)
    return False

host, other = hosts = Host("a", 11), Host("b", 12)
build_network(hosts)
server = subprocess.Popen(
    [*host.prefix(), sys.executable, "-m", "http.server", "8000", "--bind", host.address], stdout=subprocess.DEVNULL
)
print(connects(60))
host.cut_off()
print(connects(1), server.poll())
host.heal()
print(connects(60))
host.lose()
print(connects(1), server.wait(60), host.pids())
remove_network(hosts)
# Another part of the simulation starts with a new network.
build_network(hosts)
"""
_WHY_NOT = why_not()


@pytest.mark.skipif(_WHY_NOT is not None, reason=str(_WHY_NOT))
def test_hosts_are_cut_off_healed_and_lost() -> None:
    command = isolated([sys.executable, "-c", _CUT_HEALED_LOST])
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=250, check=False)
    assert done.stdout.splitlines() == ["True", "False None", "True", "False -9 []"], done.stderr
    assert done.returncode == 0, done.stderr


def test_the_documented_commands_are_valid() -> None:
    text = (ROOT / "docs/run/scale.md").read_text("utf-8")
    commands = re.findall(r'`make simulation(?: ARGS="(.*?)")?`', text)
    assert len(commands) > 3
    for arguments in commands:
        parse_arguments(shlex.split(arguments))

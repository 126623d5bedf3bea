"""Hosts on one machine: each is a network namespace with an address of its own, connected to a switch.

The command runs in private namespaces itself (`run_isolated`). The switch is in its network namespace, so clients that
it plays reach the hosts as from another machine, and nothing of the network is left when it ends, however it ends.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

SUBNET = "10.77.0"
NETMASK_BITS = 24
CLIENTS_ADDRESS = f"{SUBNET}.1"
_SWITCH = "switch"
_NAMES = Path("/run/netns")
_ISOLATED_VARIABLE = "SIMULATION_ISOLATED"
# A process namespace of its own: when the command ends, the kernel kills all processes of all hosts.
_UNSHARE = ["unshare", "--net", "--mount", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]


def why_not() -> str | None:
    """Why there can be no network namespaces here. None if there can."""
    missing = [name for name in ("ip", "nsenter", "unshare") if shutil.which(name) is None]
    if sys.platform != "linux" or missing:
        return f"network namespaces need Linux with iproute2 and util-linux (missing: {', '.join(missing) or 'Linux'})"
    if os.geteuid() != 0:
        return "network namespaces need root"
    # A container may have no right to make them.
    tried = subprocess.run(
        [*_UNSHARE, "ip", "link", "add", _SWITCH, "type", "bridge"], capture_output=True, check=False
    )
    return None if tried.returncode == 0 else f"no network namespaces here: {tried.stderr.decode().strip()}"


def isolated(command: list[str]) -> list[str]:
    """The command in private namespaces."""
    return [*_UNSHARE, *command]


def run_isolated(module: str) -> None:
    """Replace this process with the same command in private namespaces, unless it is there already."""
    if os.environ.get(_ISOLATED_VARIABLE) is None:
        os.environ[_ISOLATED_VARIABLE] = "1"
        os.execvp(_UNSHARE[0], isolated([sys.executable, "-m", module, *sys.argv[1:]]))


class Host:
    """One machine: an address, and the processes that were started with its `prefix`."""

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.address = f"{SUBNET}.{number}"
        # On the side of the switch.
        self._port = f"p-{name}"

    def prefix(self, uid: int | None = None, gid: int | None = None) -> list[str]:
        """The start of a command line that runs on this host. Not `ip netns exec`, which hides the cgroups."""
        account = [] if uid is None else [f"--setuid={uid}", f"--setgid={gid}"]
        return ["nsenter", f"--net={_NAMES / self.name}", *account, "--"]

    def connect(self) -> None:
        _ip("netns", "add", self.name)
        _ip("link", "add", self._port, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        _ip("link", "set", self._port, "master", _SWITCH, "up")
        _ip("-n", self.name, "address", "add", f"{self.address}/{NETMASK_BITS}", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip("-n", self.name, "link", "set", device, "up")

    def cut_off(self) -> None:
        """Pull the cable. Connections stay open on both sides and nothing arrives."""
        _ip("link", "set", self._port, "down")

    def heal(self) -> None:
        _ip("link", "set", self._port, "up")

    def lose(self) -> None:
        """The power fails: its processes end without a word to anyone."""
        self.cut_off()
        while pids := self.pids():
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def disconnect(self) -> None:
        self.lose()
        _ip("link", "delete", self._port)
        _ip("netns", "delete", self.name)

    def pids(self) -> list[int]:
        """Of its processes, without those in a network namespace of their own, such as commands in a sandbox."""
        return [int(pid) for pid in _ip("netns", "pids", self.name).split()]


def build_network(hosts: Sequence[Host]) -> None:
    # Hides the names of the machine, and only for this process and its children.
    _NAMES.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", _NAMES], check=True)
    _ip("link", "set", "lo", "up")
    _ip("link", "add", _SWITCH, "type", "bridge")
    _ip("address", "add", f"{CLIENTS_ADDRESS}/{NETMASK_BITS}", "dev", _SWITCH)
    _ip("link", "set", _SWITCH, "up")
    for host in hosts:
        host.connect()


def remove_network(hosts: Sequence[Host]) -> None:
    for host in hosts:
        host.disconnect()
    _ip("link", "delete", _SWITCH)
    subprocess.run(["umount", "--lazy", _NAMES], check=True)


def _ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout

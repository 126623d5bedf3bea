"""Runs inside a sandbox, with the Python of the system: tries to get out. Prints what succeeded, one line each.

Its argument is a JSON object with what to look for outside.
"""

import ctypes
import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

TARGET = json.loads(sys.argv[1])
LIBC = ctypes.CDLL(None, use_errno=True)
MACHINE = os.uname().machine
SYSCALLS = {"x86_64": {"keyctl": 250, "io_uring_setup": 425}, "aarch64": {"keyctl": 219, "io_uring_setup": 425}}


def say(*words: str) -> None:
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()


def escaped(what: str) -> None:
    say("ESCAPED", what)


def attempt(what: str, action: Callable[[], object]) -> None:
    """An action that raises OSError was refused."""
    try:
        found = action()
    except OSError:
        return
    escaped(f"{what}: {found!r}")


def libc(name: str, *arguments: object) -> str:
    if getattr(LIBC, name)(*arguments) == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return name


def read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(200)


def write(path: str) -> str:
    with open(path, "wb") as file:
        file.write(b"x")
    return path


def files() -> None:
    for path in TARGET["secrets"]:
        attempt(f"read {path}", partial(read, path))
        os.symlink(path, f"link{len(os.listdir('.'))}")
    for name in os.listdir("."):
        if os.path.islink(name):
            attempt(f"read through the link {name}", partial(read, name))
    for path in ("/etc/shadow", "/etc/ssh/sshd_config", "/root", "/home", "/var/lib", "/run", "/sys/kernel"):
        attempt(f"see {path}", partial(os.stat, path))
    for path in ("/x", "/usr/x", "/usr/bin/env", "/etc/x", "/etc/passwd", "/dev/x", "/proc/sysrq-trigger", "skills/x"):
        attempt(f"write {path}", partial(write, path))
    attempt("write a readable folder", lambda: write(TARGET["readable"] + "/reference.txt"))
    attempt("write a skill", lambda: write("skills/one/file"))
    attempt("write a setting of the kernel", lambda: write("/proc/sys/kernel/hostname"))
    attempt("write below /proc/sys/user", lambda: write("/proc/sys/user/max_user_namespaces"))
    attempt("link to a file of the system", lambda: os.link("/usr/bin/env", "hard"))
    attempt("replace the program of process 1", lambda: os.open("/proc/1/exe", os.O_WRONLY))
    if TARGET["marker"] in read("/proc/1/cmdline").decode(errors="replace"):
        escaped("paths of the host in the command line of process 1")


def descriptors() -> None:
    for name in os.listdir("/proc/self/fd"):
        number = int(name)
        try:
            mode = os.fstat(number).st_mode
        except OSError:
            continue
        if stat.S_ISDIR(mode):
            attempt(f"descriptor {number}", partial(os.open, "..", os.O_RDONLY, dir_fd=number))
        elif stat.S_ISREG(mode) and number > 2:
            attempt(f"write to descriptor {number}", partial(write, f"/proc/self/fd/{number}"))
        elif number > 2:
            escaped(f"descriptor {number} is open: {os.readlink(f'/proc/self/fd/{number}')}")


def environment() -> None:
    texts = [json.dumps(dict(os.environ))]
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                texts.append(read(f"/proc/{name}/environ").decode(errors="replace"))
            except OSError:
                continue
    if any(TARGET["canary"] in text for text in texts):
        escaped("environment of the server")


def processes() -> None:
    own = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    if len(own) > 10:
        escaped(f"processes of others: {own}")
    pid = TARGET["pid"]
    if pid not in own:
        attempt("signal the worker", lambda: os.kill(pid, 0))
        attempt("ptrace the worker", lambda: libc("ptrace", 16, pid, 0, 0))
        attempt("environment of the worker", lambda: read(f"/proc/{pid}/environ"))
    attempt("leave by the root of process 1", lambda: read("/proc/1/root" + TARGET["secrets"][0]))
    attempt("leave by the folder of process 1", lambda: read("/proc/1/cwd" + TARGET["secrets"][0]))
    attempt("raise the priority", lambda: os.nice(-5))


def network() -> None:
    def connect(family: int, address: Any) -> object:
        with socket.socket(family, socket.SOCK_STREAM) as connection:
            connection.settimeout(2)
            connection.connect(address)
            return address

    attempt("IPv4", lambda: connect(socket.AF_INET, ("127.0.0.1", TARGET["ipv4_port"])))
    if TARGET["ipv6_port"]:
        attempt("IPv6", lambda: connect(socket.AF_INET6, ("::1", TARGET["ipv6_port"])))
    attempt("Unix socket", lambda: connect(socket.AF_UNIX, TARGET["unix_path"]))
    attempt("abstract socket", lambda: connect(socket.AF_UNIX, "\0" + TARGET["abstract_name"]))
    attempt("packet socket", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close())
    names = [name for _, name in socket.if_nameindex()]
    if names != ["lo"]:
        escaped(f"interfaces {names}")
    # vsock, which reaches the host of a virtual machine, and crypto. They belong to no network namespace.
    for number in (40, 38):
        attempt(f"socket of the family {number}", partial(socket.socket, number, socket.SOCK_STREAM))


def privileges() -> None:
    attempt("become root", lambda: os.setuid(0))
    attempt("become root in the namespace", lambda: os.setgroups([0]))
    attempt("mount", lambda: libc("mount", b"none", b"/tmp", b"tmpfs", 0, None))
    attempt("user namespace", lambda: libc("unshare", 0x10000000))
    attempt("chroot", lambda: os.chroot("/tmp"))
    attempt("device", lambda: os.mknod("device", 0o600 | stat.S_IFCHR, os.makedev(1, 3)))
    attempt("block device", lambda: os.mknod("/tmp/disk", 0o600 | stat.S_IFBLK, os.makedev(254, 0)))
    for name in ("mem", "kmsg", "sda", "vda", "fuse", "kvm", "net/tun"):
        attempt(f"/dev/{name}", partial(os.stat, f"/dev/{name}"))
    attempt("terminal", lambda: os.open("/dev/tty", os.O_RDWR))
    for name, number in SYSCALLS[MACHINE].items():
        attempt(name, partial(libc, "syscall", number, 0, 0, 0, 0, 0))
    with open("/proc/self/status", encoding="utf-8") as file:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        if int(status[name], 16):
            escaped(f"{name} {status[name]}")
    if status["NoNewPrivs"] != "1" or set(status["Groups"].split()) - {"1000"}:
        escaped(f"NoNewPrivs {status['NoNewPrivs']}, groups {status['Groups']}")
    # A setuid program stays without effect.
    os.system("cp /usr/bin/id own-id; chmod 6755 own-id")
    if b"euid=0" in subprocess.run(["./own-id"], capture_output=True, check=False).stdout:
        escaped("setuid")


for part in (files, descriptors, environment, processes, network, privileges):
    try:
        part()
    except Exception as fault:
        say("FAILED", part.__name__, repr(fault))
say("DONE")

"""A seccomp filter: system calls that commands do not need and that are not, or not fully, covered by namespaces.

It is a list of what is refused, so it narrows the surface of the kernel; the namespaces are the boundary.
"""

import errno
import struct

from quarterdeck.agents.sandbox.model import SandboxUnavailable

_LOAD_WORD = 0x20
_JUMP_EQUAL = 0x15
_JUMP_AT_LEAST = 0x35
_RETURN = 0x06
_ALLOW = 0x7FFF0000
_KILL = 0x80000000
_REFUSE = 0x00050000 | errno.EPERM
_NUMBER_OFFSET = 0
_ARCHITECTURE_OFFSET = 4
# Of the low half of the first argument.
_ARGUMENT_OFFSET = 16
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# System calls of the x32 interface have this bit, and would be other numbers for the same calls.
_X32_BIT = 0x40000000

# Name → number on x86_64 and aarch64.
_REFUSED = {
    # Keyrings of the kernel are inherited from the worker.
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # Parts of the kernel with many past faults.
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    # Descriptors without a path.
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    # Of the whole machine; root in the namespace may not use them either.
    "acct": (163, 89),
    "quotactl": (179, 60),
    "syslog": (103, 116),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    # Namespaces and mounts.
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
}
# unix, inet, inet6 and netlink. Others do not belong to a network namespace: vsock reaches the host of a virtual
# machine also without a network.
_SOCKET = (41, 198)
_SOCKET_FAMILIES = (1, 2, 10, 16)
# System V shared memory stays when no process uses it, so only a cgroup can bound it.
_REFUSED_WITHOUT_CGROUP = {"shmget": (29, 194)}


def syscall_filter(machine: str, *, has_cgroup: bool) -> bytes:
    """A program for bwrap's --seccomp."""
    if machine not in _ARCHITECTURES:
        raise SandboxUnavailable(f"bubblewrap is supported on {' and '.join(_ARCHITECTURES)}, not on {machine}")
    column = list(_ARCHITECTURES).index(machine)
    refused = _REFUSED if has_cgroup else {**_REFUSED, **_REFUSED_WITHOUT_CGROUP}
    numbers = sorted(numbers[column] for numbers in refused.values())
    program = [
        _instruction(_LOAD_WORD, _ARCHITECTURE_OFFSET),
        _instruction(_JUMP_EQUAL, _ARCHITECTURES[machine], if_true=1),
        # Programs for another architecture, such as 32-bit ones, have other numbers.
        _instruction(_RETURN, _KILL),
        _instruction(_LOAD_WORD, _NUMBER_OFFSET),
    ]
    end = _socket_families(_SOCKET[column])
    # From the end of the list.
    to_refusal = len(end) - 2
    if machine == "x86_64":
        program.append(_instruction(_JUMP_AT_LEAST, _X32_BIT, if_true=len(numbers) + to_refusal))
    program += [
        _instruction(_JUMP_EQUAL, number, if_true=len(numbers) - position - 1 + to_refusal)
        for position, number in enumerate(numbers)
    ]
    return b"".join(program + end)


def _socket_families(socket: int) -> list[bytes]:
    """Allows all other system calls. The last two instructions refuse and allow."""
    return [
        _instruction(_JUMP_EQUAL, socket, if_true=1),
        _instruction(_RETURN, _ALLOW),
        _instruction(_LOAD_WORD, _ARGUMENT_OFFSET),
        *(
            _instruction(_JUMP_EQUAL, family, if_true=len(_SOCKET_FAMILIES) - position)
            for position, family in enumerate(_SOCKET_FAMILIES)
        ),
        _instruction(_RETURN, _REFUSE),
        _instruction(_RETURN, _ALLOW),
    ]


def _instruction(code: int, value: int, if_true: int = 0) -> bytes:
    """struct sock_filter. If a comparison is false, the next instruction follows."""
    return struct.pack("=HBBI", code, if_true, 0, value)

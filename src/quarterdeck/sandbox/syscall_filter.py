"""A seccomp filter: system calls that commands do not need and that are not, or not fully, covered by namespaces.

It is a list of what is refused, so it narrows the surface of the kernel; the namespaces are the boundary.
"""

import errno
import struct
from collections.abc import Sequence

from quarterdeck.sandbox.model import SandboxUnavailable

_LOAD_WORD = 0x20
_AND = 0x54
_JUMP_EQUAL = 0x15
_JUMP_AT_LEAST = 0x35
_RETURN = 0x06
_ALLOW = 0x7FFF0000
_KILL = 0x80000000
_REFUSE = 0x00050000 | errno.EPERM
# As of a file system without this function: programs and the C library then do without it.
_NOT_SUPPORTED = 0x00050000 | errno.EOPNOTSUPP
_NUMBER_OFFSET = 0
_ARCHITECTURE_OFFSET = 4
# Where the low halves of the first two arguments are.
_ARGUMENT_OFFSETS = (16, 24)
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
    # As an ioctl that is refused below.
    "file_setattr": (469, 469),
    # They affect the whole machine; root in the namespace may not use them either.
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
    "open_tree_attr": (467, 467),
    "mount_setattr": (442, 442),
}
# unix, inet, inet6 and netlink. Others do not belong to a network namespace: vsock reaches the host of a virtual
# machine also without a network.
_SOCKET = (41, 198)
_SOCKET_FAMILIES = (1, 2, 10, 16)
# They take space on the disk without writing to it: any amount between two measurements of the folder, and more than
# the limit for one file. ioctls of this type do the same (FS_IOC_RESVSP, FS_IOC_ZERO_RANGE), or make XFS reserve
# gigabytes for each written byte (FS_IOC_FSSETXATTR, as file_setattr).
_FALLOCATE = (285, 47)
_IOCTL = (16, 29)
_IOCTL_TYPE_MASK = 0xFF00
_IOCTL_TYPE = ord("X") << 8
# System V shared memory stays when no process uses it, so only a cgroup can bound it.
_REFUSED_WITHOUT_CGROUP = {"shmget": (29, 194)}


def syscall_filter(machine: str, *, has_cgroup: bool) -> bytes:
    """A program for bwrap's --seccomp."""
    if machine not in _ARCHITECTURES:
        raise SandboxUnavailable(f"bubblewrap is supported on {' and '.join(_ARCHITECTURES)}, not on {machine}")
    column = list(_ARCHITECTURES).index(machine)
    refused = _REFUSED if has_cgroup else {**_REFUSED, **_REFUSED_WITHOUT_CGROUP}
    return _assembled(
        [
            (_LOAD_WORD, _ARCHITECTURE_OFFSET),
            # Programs for another architecture, such as 32-bit ones, have other numbers.
            (_JUMP_EQUAL, _ARCHITECTURES[machine], "same architecture"),
            (_RETURN, _KILL),
            "same architecture",
            (_LOAD_WORD, _NUMBER_OFFSET),
            *([(_JUMP_AT_LEAST, _X32_BIT, "refuse")] if machine == "x86_64" else []),
            *((_JUMP_EQUAL, number, "refuse") for number in sorted(numbers[column] for numbers in refused.values())),
            (_JUMP_EQUAL, _FALLOCATE[column], "not supported"),
            (_JUMP_EQUAL, _IOCTL[column], "ioctl"),
            (_JUMP_EQUAL, _SOCKET[column], "socket"),
            (_RETURN, _ALLOW),
            "ioctl",
            (_LOAD_WORD, _ARGUMENT_OFFSETS[1]),
            (_AND, _IOCTL_TYPE_MASK),
            (_JUMP_EQUAL, _IOCTL_TYPE, "not supported"),
            (_RETURN, _ALLOW),
            "socket",
            (_LOAD_WORD, _ARGUMENT_OFFSETS[0]),
            *((_JUMP_EQUAL, family, "allow") for family in _SOCKET_FAMILIES),
            "refuse",
            (_RETURN, _REFUSE),
            "allow",
            (_RETURN, _ALLOW),
            "not supported",
            (_RETURN, _NOT_SUPPORTED),
        ]
    )


def _assembled(lines: Sequence[str | tuple[int, int] | tuple[int, int, str]]) -> bytes:
    """Of instructions and labels. Jumps lead forward; if a comparison is false, the next instruction follows."""
    labels: dict[str, int] = {}
    instructions: list[tuple[int, int] | tuple[int, int, str]] = []
    for line in lines:
        if isinstance(line, str):
            labels[line] = len(instructions)
        else:
            instructions.append(line)
    program = b""
    for position, (code, value, *label) in enumerate(instructions):
        distance = labels[label[0]] - position - 1 if label else 0
        # struct sock_filter.
        program += struct.pack("=HBBI", code, distance, 0, value)
    return program

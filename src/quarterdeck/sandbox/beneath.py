"""Opens paths that lie beneath a folder, whatever links are in it. By descriptors only, never by absolute paths.

`openat2` of Linux 5.6 does it in one call: a path that leaves the folder by `..`, by an absolute path or by a link is
refused by the kernel, also while others change the folder.
"""

import ctypes
import errno
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from quarterdeck.sandbox.manifest import parents
from quarterdeck.sandbox.model import Refusal

# The same number on all architectures.
_OPENAT2 = 437
_RESOLVE_NO_MAGICLINKS, _RESOLVE_BENEATH = 0x02, 0x08
# The kernel could not decide because something was renamed meanwhile.
_TRIES = 32
FILE_MODE, FOLDER_MODE = 0o644, 0o755
_libc = ctypes.CDLL(None, use_errno=True)


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_beneath(folder: int, path: str, flags: int, mode: int = 0) -> int:
    """A descriptor of `path` beneath the folder with this descriptor. Links are followed as long as they stay beneath.
    Raises OSError; `reported` makes a Refusal of it."""
    how = _How(flags | os.O_CLOEXEC | os.O_NOCTTY, mode, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS)
    for _ in range(_TRIES):
        found: int = _libc.syscall(
            ctypes.c_long(_OPENAT2),
            ctypes.c_int(folder),
            ctypes.c_char_p(os.fsencode(path or ".")),
            ctypes.byref(how),
            ctypes.c_size_t(ctypes.sizeof(how)),
        )
        if found >= 0:
            return found
        number = ctypes.get_errno()
        if number != errno.EAGAIN:
            break
    raise OSError(number, os.strerror(number), path)


@contextmanager
def reported(path: str) -> Iterator[None]:
    """Errors of the file system as reasons that a model can act on."""
    try:
        yield
    except FileNotFoundError as fault:
        raise Refusal(f'there is no file or folder "{path}".') from fault
    except OSError as fault:
        reason = _REASONS.get(fault.errno or 0)
        if reason is None:
            raise
        raise Refusal(f'"{path}" {reason}') from fault


_REASONS = {
    errno.EXDEV: "leaves the folder of the session.",
    errno.ELOOP: "leaves the folder of the session, or is a link that leads back to itself.",
    errno.ENOTDIR: "has a file where a folder is expected.",
    errno.EISDIR: "is a folder.",
    errno.EACCES: "cannot be opened: its permissions do not allow it.",
    errno.EPERM: "cannot be changed: its permissions do not allow it.",
    errno.ENAMETOOLONG: "is too long.",
    errno.ENXIO: "is not a regular file.",
    errno.EINVAL: "is not a valid path.",
    errno.ENOTEMPTY: "is a folder that is not empty.",
}


@contextmanager
def descriptor(found: int) -> Iterator[int]:
    try:
        yield found
    finally:
        os.close(found)


def open_folder(folder: int, path: str) -> int:
    return open_beneath(folder, path, os.O_RDONLY | os.O_DIRECTORY)


def open_file(folder: int, path: str) -> int:
    """A regular file, for reading. O_NONBLOCK: a FIFO would block."""
    found = open_beneath(folder, path, os.O_RDONLY | os.O_NONBLOCK)
    mode = os.fstat(found).st_mode
    if stat.S_ISREG(mode):
        return found
    os.close(found)
    raise OSError(errno.EISDIR if stat.S_ISDIR(mode) else errno.ENXIO, "not a regular file", path)


def make_folders(folder: int, path: str, owner: int | None) -> int:
    """A descriptor of the folder at `path`. It and its parents are made if they are missing. `path` has no `..`."""
    for parent in [*parents(path), path] if path else []:
        above, _, name = parent.rpartition("/")
        with descriptor(open_folder(folder, above)) as found, suppress(FileExistsError):
            os.mkdir(name, FOLDER_MODE, dir_fd=found)
            own(found, name, FOLDER_MODE, owner)
    return open_folder(folder, path)


def own(folder: int, name: str, mode: int, owner: int | None) -> None:
    """Mode and owner of a folder that was just made: mkdir applies the umask."""
    with descriptor(os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)) as made:
        if owner is not None:
            os.fchown(made, owner, owner)
        os.fchmod(made, mode)


def replace_file(folder: int, name: str, pieces: Iterable[bytes], owner: int | None) -> None:
    """The file `name` directly in the folder gets this content at once. It keeps its mode. Links are not followed."""
    mode = FILE_MODE
    with suppress(FileNotFoundError):
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISDIR(found.st_mode):
            raise OSError(errno.EISDIR, "is a folder", name)
        mode = stat.S_IMODE(found.st_mode) & 0o777
    temporary = f".{secrets.token_hex(8)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(temporary, flags, 0o600, dir_fd=folder), "wb") as file:
            file.writelines(pieces)
            file.flush()
            if owner is not None:
                os.fchown(file.fileno(), owner, owner)
            os.fchmod(file.fileno(), mode)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise

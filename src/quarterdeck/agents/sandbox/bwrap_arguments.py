"""What bubblewrap shows to a command, as its arguments. Paths are looked up once, when the adapter is created."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from quarterdeck.agents.sandbox.model import Command, Service
from quarterdeck.core.agent_settings import SandboxSettings

# Inside. The user of the host is another one.
_USER = "1000"
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
# What programs need of /etc. Everything else there may hold secrets of the host.
_ETC = (
    "ImageMagick*",
    "alternatives",
    "ca-certificates*",
    "crypto-policies",
    "debian_version",
    "fonts",
    "gai.conf",
    "java*",
    "ld.so.cache",
    "ld.so.conf*",
    "libreoffice",
    "localtime",
    "magic*",
    "mime.types",
    "os-release",
    "papersize",
    "perl",
    "pki/tls",
    "pki/ca-trust",
    "protocols",
    "python*",
    "services",
    "ssl",
    "terminfo",
    "texmf",
    "timezone",
)
_HIDDEN_ETC = ("/etc/ssl/private", "/etc/pki/tls/private")
# Files that say nothing about the host.
MADE_UP_FILES: Mapping[str, bytes] = {
    "/etc/passwd": (
        f"root:x:0:0:root:/:/sbin/nologin\nuser:x:{_USER}:{_USER}:user:/tmp:/bin/sh\n"
        "nobody:x:65534:65534:nobody:/:/sbin/nologin\n"
    ).encode(),
    "/etc/group": f"root:x:0:\nuser:x:{_USER}:\nnogroup:x:65534:\n".encode(),
    "/etc/hosts": b"127.0.0.1 localhost sandbox\n::1 localhost\n",
    "/etc/nsswitch.conf": b"passwd: files\ngroup: files\nhosts: files dns\n",
}
ENVIRONMENT: Mapping[str, str] = {
    "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
    # Caches of programs are no files of the workspace.
    "HOME": "/tmp",  # noqa: S108 (in the sandbox)
    "TMPDIR": "/tmp",  # noqa: S108 (in the sandbox)
    "USER": "user",
    "LANG": "C.UTF-8",
    "TERM": "xterm-256color",
    # Otherwise Python shows its output only at its end.
    "PYTHONUNBUFFERED": "1",
}
# Mount points below /workspace. Nothing can be written there.
_MOUNT_POINTS_BYTES = 1024 * 1024
RESERVED = "skills"


class HostView(Struct, frozen=True):
    """The parts of the host that commands can read."""

    # Path → target of the link.
    links: Mapping[str, str]
    visible: Sequence[str]
    # Folders below the visible ones, replaced by empty ones.
    hidden: Sequence[str]


def look_at_host(settings: SandboxSettings, data_dir: Path, current: Path) -> HostView:
    links = {path: os.readlink(path) for path in _SYSTEM if os.path.islink(path)}
    system = [path for path in _SYSTEM if os.path.isdir(path) and path not in links]
    etc = sorted({str(path) for pattern in _ETC for path in Path("/etc").glob(pattern)})
    if settings.network:
        etc.append("/etc/resolv.conf")
    visible = [*system, *etc, *(os.path.abspath(path) for path in settings.readable or ())]
    private = [*map(Path, _HIDDEN_ETC), data_dir.resolve(), current.resolve()]
    hidden = {str(path) for path in private if path.is_dir() and _is_below_any(path, visible)}
    return HostView(links, visible, sorted(hidden))


def _is_below_any(path: Path, folders: Iterable[str]) -> bool:
    return any(Path(os.path.realpath(folder)) in path.parents for folder in folders)


def bwrap_arguments(
    view: HostView, command: Command, settings: SandboxSettings, files: Mapping[str, int], filter_fd: int | None
) -> list[str]:
    """`files` are descriptors with the contents of files, by path."""
    return [
        *_isolation(settings.network, filter_fd),
        *_environment({}),
        *_system(view, files),
        *_own_folders(settings),
        *("--bind", str(command.folder), "/workspace", "--chdir", "/workspace"),
        *_read_only(command.read_only),
        *_READ_ONLY_REST,
    ]


def service_arguments(
    view: HostView, service: Service, settings: SandboxSettings, files: Mapping[str, int], filter_fd: int | None
) -> list[str]:
    readable = [*map(str, service.readable), *(("/etc/resolv.conf",) if service.network else ())]
    below_own = [path for path in readable if _is_below_any(Path(path), _OWN_FOLDERS)]
    return [
        *_isolation(service.network, filter_fd),
        *_environment(service.environment),
        *_system(view, files),
        # After the hidden folders: the operator named these for this service.
        *_visible(readable),
        *_own_folders(settings),
        *_memory_folder("/workspace", settings.temporary_bytes),
        # Again: the folders of the sandbox cover these.
        *_visible(below_own),
        *("--chdir", "/workspace"),
        *_READ_ONLY_REST,
    ]


_OWN_FOLDERS = ("/tmp", "/workspace")  # noqa: S108 (in the sandbox)
# Both are in memory and would have no bound.
_READ_ONLY_REST = ("--remount-ro", "/dev", "--remount-ro", "/")


def _own_folders(settings: SandboxSettings) -> list[str]:
    return [
        *("--proc", "/proc", "--dev", "/dev"),
        *_memory_folder("/tmp", settings.temporary_bytes),  # noqa: S108 (in the sandbox)
        *_memory_folder("/dev/shm", settings.temporary_bytes),  # noqa: S108 (in the sandbox)
    ]


def _isolation(network: bool, filter_fd: int | None) -> list[str]:
    return [
        *("--unshare-all", "--unshare-user", "--disable-userns"),
        *(("--share-net",) if network else ()),
        *("--uid", _USER, "--gid", _USER, "--hostname", "sandbox"),
        *("--cap-drop", "ALL", "--new-session", "--die-with-parent"),
        *(() if filter_fd is None else ("--seccomp", str(filter_fd))),
    ]


def _environment(own: Mapping[str, str]) -> list[str]:
    pairs = (("--setenv", name, value) for name, value in {**ENVIRONMENT, **own}.items())
    return ["--clearenv", *(part for pair in pairs for part in pair)]


def _system(view: HostView, files: Mapping[str, int]) -> list[str]:
    found: list[str] = []
    for path, target in view.links.items():
        found += ("--symlink", target, path)
    found += _visible(view.visible)
    for path, descriptor in files.items():
        found += ("--perms", "0444", "--ro-bind-data", str(descriptor), path)
    for path in view.hidden:
        found += (*_memory_folder(path, 4096), "--remount-ro", path)
    return found


def _visible(paths: Iterable[str]) -> list[str]:
    return [part for path in paths for part in ("--ro-bind-try", path, path)]


def _memory_folder(path: str, size: int) -> tuple[str, ...]:
    return ("--size", str(size), "--tmpfs", path)


def _read_only(folders: Mapping[str, Path]) -> list[str]:
    """All of `skills` is read-only, also without a skill: files in it are not stored."""
    roots = [f"/workspace/{name}" for name in sorted({RESERVED, *(path.split("/")[0] for path in folders)})]
    found: list[str] = []
    for root in roots:
        found += _memory_folder(root, _MOUNT_POINTS_BYTES)
    for path, source in folders.items():
        found += ("--ro-bind", str(source), f"/workspace/{path}")
    for root in roots:
        found += ("--remount-ro", root)
    return found

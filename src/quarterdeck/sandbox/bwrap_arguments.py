"""What bubblewrap shows to a command, as its arguments. Paths are looked up once, when the adapter is created."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from quarterdeck.core.settings import SandboxSettings
from quarterdeck.sandbox.adapter import SANDBOX_FOLDER, Command, Service
from quarterdeck.sandbox.scan import RESERVED

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
    # Caches of programs are no files of the session.
    "HOME": "/tmp",  # noqa: S108 (in the sandbox)
    "TMPDIR": "/tmp",  # noqa: S108 (in the sandbox)
    "USER": "user",
    "LANG": "C.UTF-8",
    "TERM": "xterm-256color",
    # Otherwise Python shows its output only at its end.
    "PYTHONUNBUFFERED": "1",
}
# Mount points below SANDBOX_FOLDER. Nothing can be written there.
MOUNT_POINTS_BYTES = 1024 * 1024


class HostView(Struct, frozen=True):
    """The parts of the host that commands can read."""

    # Path → target of the link.
    links: Mapping[str, str]
    visible: Sequence[str]
    # Folders that stay hidden, also below a visible one.
    private: Sequence[Path]
    # Arguments for what is visible and hidden.
    layout: Sequence[str]


def look_at_host(settings: SandboxSettings, data_dir: Path, current: Path) -> HostView:
    links = {path: os.readlink(path) for path in _SYSTEM if os.path.islink(path)}
    system = [path for path in _SYSTEM if os.path.isdir(path) and path not in links]
    etc = sorted({str(path) for pattern in _ETC for path in Path("/etc").glob(pattern)})
    if settings.network:
        etc.append("/etc/resolv.conf")
    visible = [*system, *etc, *(os.path.abspath(path) for path in settings.readable or ())]
    private = [*map(Path, _HIDDEN_ETC), *private_folders(data_dir, current)]
    return HostView(links, visible, private, _layout(visible, private))


def private_folders(data_dir: Path, current: Path) -> list[Path]:
    """Of the service itself."""
    return [data_dir.resolve(), current.resolve()]


def hidden_folders(visible: Iterable[str], private: Iterable[Path]) -> set[str]:
    """Where private folders would be seen, unless they are named themselves."""
    real = {path: Path(os.path.realpath(path)) for path in visible}
    return {
        os.path.join(path, folder.relative_to(above))
        for folder in private
        for path, above in real.items()
        if above in folder.parents and folder.is_dir()
    } - real.keys()


def _layout(visible: Sequence[str], private: Iterable[Path]) -> list[str]:
    """From the root downwards: the longest path decides whether a folder is visible."""
    hidden = hidden_folders(visible, private)
    found: list[str] = []
    for path in sorted({*visible, *hidden}, key=lambda path: (len(Path(path).parts), path)):
        found += _memory_folder(path, 4096) if path in hidden else ("--ro-bind-try", path, path)
    for path in sorted(hidden):
        found += ("--remount-ro", path)
    return found


def bwrap_arguments(
    view: HostView, command: Command, settings: SandboxSettings, files: Mapping[str, int], filter_fd: int
) -> list[str]:
    """`files` are descriptors with the contents of files, by path."""
    return [
        *_isolation(settings.network, filter_fd),
        *_environment({}),
        *_system(view.links, view.layout, files),
        *_own_folders(settings),
        *("--bind", str(command.folder), SANDBOX_FOLDER, "--chdir", SANDBOX_FOLDER),
        *_skills(command.skills),
        *_READ_ONLY_REST,
    ]


def service_arguments(
    view: HostView, service: Service, settings: SandboxSettings, files: Mapping[str, int], filter_fd: int
) -> list[str]:
    readable = [*map(os.path.abspath, service.readable), *(("/etc/resolv.conf",) if service.network else ())]
    # The folders of the sandbox cover those that lie below.
    late = [path for path in readable if any(Path(own) in Path(path).parents for own in _OWN_FOLDERS)]
    visible = [*view.visible, *(path for path in readable if path not in late)]
    return [
        *_isolation(service.network, filter_fd),
        *_environment(service.environment),
        *_system(view.links, _layout(visible, view.private), files),
        *_own_folders(settings),
        *_memory_folder(SANDBOX_FOLDER, settings.temporary_bytes),
        *_layout(late, view.private),
        *("--chdir", SANDBOX_FOLDER),
        *_READ_ONLY_REST,
    ]


_OWN_FOLDERS = ("/tmp", SANDBOX_FOLDER)  # noqa: S108 (in the sandbox)
# Both are in memory and would have no bound.
_READ_ONLY_REST = ("--remount-ro", "/dev", "--remount-ro", "/")


def _own_folders(settings: SandboxSettings) -> list[str]:
    return [
        *("--proc", "/proc", "--dev", "/dev"),
        *_memory_folder("/tmp", settings.temporary_bytes),  # noqa: S108 (in the sandbox)
        *_memory_folder("/dev/shm", settings.temporary_bytes),  # noqa: S108 (in the sandbox)
    ]


def _isolation(network: bool, filter_fd: int) -> list[str]:
    return [
        *("--unshare-all", "--unshare-user", "--disable-userns"),
        *(("--share-net",) if network else ()),
        *("--uid", _USER, "--gid", _USER, "--hostname", "sandbox"),
        *("--cap-drop", "ALL", "--new-session", "--die-with-parent", "--seccomp", str(filter_fd)),
    ]


def _environment(own: Mapping[str, str]) -> list[str]:
    pairs = (("--setenv", name, value) for name, value in {**ENVIRONMENT, **own}.items())
    return ["--clearenv", *(part for pair in pairs for part in pair)]


def _system(links: Mapping[str, str], layout: Iterable[str], files: Mapping[str, int]) -> list[str]:
    found: list[str] = []
    for path, target in links.items():
        found += ("--symlink", target, path)
    found += layout
    for path, descriptor in files.items():
        found += ("--perms", "0444", "--ro-bind-data", str(descriptor), path)
    return found


def _memory_folder(path: str, size: int) -> tuple[str, ...]:
    return ("--size", str(size), "--tmpfs", path)


def _skills(skills: Mapping[str, Path]) -> list[str]:
    """The folder is read-only also without a skill: files in it are not stored."""
    root = f"{SANDBOX_FOLDER}/{RESERVED}"
    mounts = (("--ro-bind", str(source), f"{root}/{name}") for name, source in skills.items())
    parts = (part for mount in mounts for part in mount)
    return [*_memory_folder(root, MOUNT_POINTS_BYTES), *parts, "--remount-ro", root]

"""The file with saved logins, each under a profile name. Only its owner can read it."""

import os
import stat
from pathlib import Path

import msgspec
import typer
from msgspec import Struct

from quarterdeck.cli.exit_codes import CliError, ExitCode

DEFAULT = "default"
_GROUP_AND_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class Login(Struct, frozen=True, omit_defaults=True):
    """`repr` does not show the key."""

    url: str
    key: str
    workspace: str | None = None
    # Whether the key may be sent unencrypted to another host.
    allow_http: bool = False

    def __repr__(self) -> str:
        return f"Login({self.url!r})"


class _File(Struct, frozen=True):
    profiles: dict[str, Login] = {}


def location() -> Path:
    """$XDG_CONFIG_HOME or ~/.config on Linux, the usual folders on macOS and Windows."""
    return Path(typer.get_app_dir("quarterdeck")) / "profiles.json"


def read_all() -> dict[str, Login]:
    path = location()
    try:
        with path.open("rb") as file:
            if os.name == "posix" and os.fstat(file.fileno()).st_mode & _GROUP_AND_OTHERS:
                message = f"Other users can read the keys in {path}. Run: chmod 600 {path}"
                raise CliError(message, ExitCode.INVALID_INPUT)
            return msgspec.json.decode(file.read(), type=_File).profiles
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise CliError(f"{path}: {error.strerror}", ExitCode.INVALID_INPUT) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        # The error's own text may quote a key.
        message = f"{path}: not a valid profiles file. Delete it and run `qd login` again."
        raise CliError(message, ExitCode.INVALID_INPUT) from None


def read(name: str) -> Login:
    found = read_all()
    if name not in found:
        known = f"Profiles: {', '.join(sorted(found))}." if found else "There are no profiles."
        raise CliError(f"No profile named {name}. {known} Run `qd login` to create one.", ExitCode.INVALID_INPUT)
    return found[name]


def save(name: str, login: Login) -> None:
    _write(read_all() | {name: login})


def delete(name: str) -> None:
    read(name)
    _write({other: login for other, login in read_all().items() if other != name})


def _write(profiles: dict[str, Login]) -> None:
    """Replaces the file atomically."""
    import tempfile

    path = location()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".profiles.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(_File(profiles)), indent=2) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise CliError(f"{path}: {error.strerror}", ExitCode.INVALID_INPUT) from None

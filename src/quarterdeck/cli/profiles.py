"""The file with the logins of a person, each under a name. Nobody else can read it, from the moment it exists."""

import os
import stat
import tempfile
from pathlib import Path

import msgspec
import typer
from msgspec import Struct

from quarterdeck.cli.exit_codes import Complaint, Exit

DEFAULT = "default"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class Login(Struct, frozen=True, omit_defaults=True):
    """Its text form leaves the key out."""

    url: str
    key: str
    workspace: str | None = None
    # Whether the key may travel in the clear to a host other than this one.
    allow_http: bool = False

    def __repr__(self) -> str:
        return f"Login({self.url!r})"


class _File(Struct, frozen=True):
    profiles: dict[str, Login] = {}


def location() -> Path:
    """Under $XDG_CONFIG_HOME or ~/.config; where a Mac or Windows keeps such files, there."""
    return Path(typer.get_app_dir("quarterdeck")) / "profiles.json"


def read_all() -> dict[str, Login]:
    path = location()
    try:
        with path.open("rb") as file:
            if os.name == "posix" and os.fstat(file.fileno()).st_mode & _OTHERS:
                raise Complaint(f"others can read the keys in {path}. Run: chmod 600 {path}", Exit.WRONG_INPUT)
            return msgspec.json.decode(file.read(), type=_File).profiles
    except FileNotFoundError:
        return {}
    except OSError as fault:
        raise Complaint(f"{path}: {fault.strerror}", Exit.WRONG_INPUT) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        # Its text may quote a key.
        raise Complaint(f"{path}: it holds no profiles. Remove it and log in again.", Exit.WRONG_INPUT) from None


def read(name: str) -> Login:
    found = read_all()
    if name not in found:
        there = f"there is {', '.join(sorted(found))}" if found else "there is none yet"
        raise Complaint(f"no profile is called {name}: {there}. `qd login` makes one.", Exit.WRONG_INPUT)
    return found[name]


def store(name: str, login: Login) -> None:
    _write(read_all() | {name: login})


def forget(name: str) -> None:
    read(name)
    _write({other: login for other, login in read_all().items() if other != name})


def _write(profiles: dict[str, Login]) -> None:
    """A reader finds the old file or the new one, never a part."""
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
    except OSError as fault:
        raise Complaint(f"{path}: {fault.strerror}", Exit.WRONG_INPUT) from None

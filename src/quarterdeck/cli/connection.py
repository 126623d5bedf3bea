"""Which server and key a command uses: --profile, else the environment, else the default profile. The key is an API
key, or the credential of a device that `qd login` gets. A saved key is only sent to the server it was saved for. Logins
are saved in a file that only its owner can read."""

import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec
import typer
from msgspec import Struct

from quarterdeck.cli.errors import KEY as KEY
from quarterdeck.cli.errors import CliError, ExitCode
from quarterdeck.client import Client, InvalidArgument, NotFound, QuarterdeckError

# `qd serve` prints these at its first start. Variables that start with QUARTERDECK_ are settings of the server.
URL = "QD_URL"
WORKSPACE = "QD_WORKSPACE"
PROFILE = "QD_PROFILE"
ALLOW_HTTP = "QD_ALLOW_HTTP"

# The default address of `qd serve`.
LOCAL_URL = "http://127.0.0.1:8700"
DEFAULT_PROFILE = "default"

_DEVICE_PREFIX = "qdd_"
# Long enough for a restart of the server.
_RETRIES = 4
_RETRY_SECONDS = 30.0
_TIMEOUT_SECONDS = 30.0
# Nobody waits longer for a completion.
_HURRIED_SECONDS = 2.0
_GROUP_AND_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class Login(Struct, frozen=True, omit_defaults=True):
    """`repr` does not show the key."""

    url: str
    key: str
    workspace: str | None = None
    # Whether the key may be sent unencrypted to another host.
    allow_http: bool = False
    # Of the person, if the key belongs to a device.
    email: str | None = None

    def __repr__(self) -> str:
        return f"Login({self.url!r})"


class ConnectionInfo(Struct, frozen=True):
    """`repr` does not show the key."""

    url: str
    # None: for operations that need none.
    key: str | None
    workspace: str | None
    # None: everything comes from the environment.
    profile: str | None
    allow_http: bool = False

    def __repr__(self) -> str:
        return f"ConnectionInfo({self.url!r}, profile={self.profile!r})"


def is_device(key: str | None) -> bool:
    """Whether it was made by `qd login` for a person."""
    return key is not None and key.startswith(_DEVICE_PREFIX)


def profile_name(profile: str | None) -> str:
    """Of the saved login that `--profile` or the environment names."""
    return profile or os.environ.get(PROFILE) or DEFAULT_PROFILE


def connect(profile: str | None, environ: Mapping[str, str] = os.environ) -> ConnectionInfo:
    if profile is not None:
        return _from_profile(profile)
    url, key, workspace = (environ.get(name) or None for name in (URL, KEY, WORKSPACE))
    allow_http = environ.get(ALLOW_HTTP) == "1"
    if url is not None and key is not None:
        return ConnectionInfo(url, key, workspace, None, allow_http)
    name = environ.get(PROFILE) or DEFAULT_PROFILE
    if name == DEFAULT_PROFILE and name not in read_profiles():
        if key is None:
            raise CliError(f"Not logged in. Run `qd login`, or set {URL} and {KEY}.", ExitCode.NOT_ALLOWED)
        return ConnectionInfo(LOCAL_URL, key, workspace, None)
    stored = _from_profile(name)
    if key is not None:
        # The key may belong to another workspace than the profile's.
        return ConnectionInfo(stored.url, key, workspace, stored.profile, stored.allow_http or allow_http)
    if url is not None and url.rstrip("/") != stored.url.rstrip("/"):
        raise CliError(f"{URL} is set without {KEY}. The key of the profile {name} is only sent to {stored.url}.")
    return ConnectionInfo(
        stored.url, stored.key, workspace or stored.workspace, stored.profile, stored.allow_http or allow_http
    )


def _from_profile(name: str) -> ConnectionInfo:
    login = read_profile(name)
    return ConnectionInfo(login.url, login.key, login.workspace, name, login.allow_http)


def client_for(info: ConnectionInfo, *, is_hurried: bool = False) -> Client:
    """`is_hurried`: for completion, which gives up after a moment."""
    try:
        return Client(
            info.url,
            info.key,
            workspace_id=info.workspace,
            timeout=_HURRIED_SECONDS if is_hurried else _TIMEOUT_SECONDS,
            retries=0 if is_hurried else _RETRIES,
            retry_seconds=_RETRY_SECONDS,
            allow_http=info.allow_http,
        )
    except InvalidArgument as error:
        # The message names Python parameters.
        message = error.message.replace("base_url", "the address").replace("workspace_id", "the workspace")
        raise CliError(message.replace("allow_http=True", f"`qd login --allow-http` or {ALLOW_HTTP}=1")) from None


@contextmanager
def open_client(profile: str | None) -> Iterator[Client]:
    info = connect(profile)
    with explained(info), client_for(info) as client:
        yield client


@contextmanager
def explained(info: ConnectionInfo) -> Iterator[None]:
    """Nothing is found by a person who has left the workspace of the login: then the error says so."""
    try:
        yield
    except NotFound:
        if is_device(info.key) and info.workspace is not None and not _is_member(info, info.workspace):
            hint = "Choose another with `qd workspaces list` and `qd workspaces use`."
            raise CliError(f"You are not a member of this workspace any more. {hint}", ExitCode.NOT_ALLOWED) from None
        raise


def _is_member(info: ConnectionInfo, workspace: str) -> bool:
    try:
        with client_for(info) as client:
            return workspace in [str(one.workspace_id) for one in client.get_profile().workspaces]
    except QuarterdeckError:
        return True


# --- saved logins ---


class _File(Struct, frozen=True):
    profiles: dict[str, Login] = {}


def profiles_file() -> Path:
    """$XDG_CONFIG_HOME or ~/.config on Linux, the usual folders on macOS and Windows."""
    return Path(typer.get_app_dir("quarterdeck")) / "profiles.json"


def read_profiles() -> dict[str, Login]:
    path = profiles_file()
    try:
        with path.open("rb") as file:
            if os.name == "posix" and os.fstat(file.fileno()).st_mode & _GROUP_AND_OTHERS:
                raise CliError(f"Other users can read the keys in {path}. Run: chmod 600 {path}")
            return msgspec.json.decode(file.read(), type=_File).profiles
    except FileNotFoundError:
        return {}
    except (msgspec.DecodeError, UnicodeDecodeError):
        # The error's own text may quote a key.
        raise CliError(f"{path}: not a valid profiles file. Delete it and run `qd login` again.") from None


def read_profile(name: str) -> Login:
    found = read_profiles()
    if name not in found:
        known = f"Profiles: {', '.join(sorted(found))}." if found else "There are no profiles."
        raise CliError(f"No profile named {name}. {known} Run `qd login` to create one.")
    return found[name]


def save_profile(name: str, login: Login) -> None:
    _write(read_profiles() | {name: login})


def delete_profile(name: str) -> None:
    read_profile(name)
    _write({other: login for other, login in read_profiles().items() if other != name})


def _write(profiles: dict[str, Login]) -> None:
    """Replaces the file atomically."""
    path = profiles_file()
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
        raise CliError(f"{path}: {error.strerror}") from None

"""Which server and key a command uses: --profile, else the environment, else the default profile. A saved key is only
sent to the server it was saved for."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from quarterdeck.cli import profiles
from quarterdeck.cli.exit_codes import CliError, ExitCode

if TYPE_CHECKING:
    from quarterdeck.client import Client

# `qd serve` prints these at its first start. Variables that start with QUARTERDECK_ are settings of the server.
URL = "QD_URL"
KEY = "QD_KEY"
WORKSPACE = "QD_WORKSPACE"
PROFILE = "QD_PROFILE"
ALLOW_HTTP = "QD_ALLOW_HTTP"

# The default address of `qd serve`.
LOCAL_URL = "http://127.0.0.1:8700"

# Long enough for a restart of the server.
_RETRIES = 4
_RETRY_SECONDS = 30.0
_TIMEOUT_SECONDS = 30.0
# Nobody waits longer for a completion.
_HURRIED_SECONDS = 2.0


class ConnectionInfo(Struct, frozen=True):
    """`repr` does not show the key."""

    url: str
    key: str
    workspace: str | None
    # None: everything comes from the environment.
    profile: str | None
    allow_http: bool = False

    def __repr__(self) -> str:
        return f"ConnectionInfo({self.url!r}, profile={self.profile!r})"


def connect(profile: str | None, environ: Mapping[str, str] = os.environ) -> ConnectionInfo:
    if profile is not None:
        return _from_profile(profile)
    url, key, workspace = (environ.get(name) or None for name in (URL, KEY, WORKSPACE))
    allow_http = environ.get(ALLOW_HTTP) == "1"
    if url is not None and key is not None:
        return ConnectionInfo(url, key, workspace, None, allow_http)
    name = environ.get(PROFILE) or profiles.DEFAULT
    if name == profiles.DEFAULT and name not in profiles.read_all():
        if key is None:
            raise CliError(f"Not logged in. Run `qd login`, or set {URL} and {KEY}.", ExitCode.NOT_ALLOWED)
        return ConnectionInfo(LOCAL_URL, key, workspace, None)
    stored = _from_profile(name)
    if key is not None:
        # The key may belong to another workspace than the profile's.
        return ConnectionInfo(stored.url, key, workspace, stored.profile, stored.allow_http or allow_http)
    if url is not None and url.rstrip("/") != stored.url.rstrip("/"):
        message = f"{URL} is set without {KEY}. The key of the profile {name} is only sent to {stored.url}."
        raise CliError(message, ExitCode.INVALID_INPUT)
    return ConnectionInfo(
        stored.url, stored.key, workspace or stored.workspace, stored.profile, stored.allow_http or allow_http
    )


def _from_profile(name: str) -> ConnectionInfo:
    login = profiles.read(name)
    return ConnectionInfo(login.url, login.key, login.workspace, name, login.allow_http)


def client_for(info: ConnectionInfo, *, is_hurried: bool = False) -> "Client":
    """`is_hurried`: for completion, which gives up after a moment."""
    from quarterdeck.client import Client, InvalidArgument

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
        message = message.replace("allow_http=True", f"`qd login --allow-http` or {ALLOW_HTTP}=1")
        raise CliError(message, ExitCode.INVALID_INPUT) from None


def open_client(profile: str | None) -> "Client":
    return client_for(connect(profile))

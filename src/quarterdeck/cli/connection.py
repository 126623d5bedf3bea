"""Which server a command talks to, and as whom: the option --profile, or else the environment, or else the default
profile. A stored key goes to the server that it was stored for and to no other."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from quarterdeck.cli import profiles
from quarterdeck.cli.exit_codes import Complaint, Exit

if TYPE_CHECKING:
    from quarterdeck.client import Client

# The names that the first start of a server prints and that every example uses. QUARTERDECK_… are settings of a server.
URL = "QD_URL"
KEY = "QD_KEY"
WORKSPACE = "QD_WORKSPACE"
PROFILE = "QD_PROFILE"
ALLOW_HTTP = "QD_ALLOW_HTTP"

# Where `qd serve` is unless told otherwise.
LOCAL_URL = "http://127.0.0.1:8700"

# Short enough for a person who waits, long enough for a server that is being restarted.
_RETRIES = 4
_RETRY_SECONDS = 30.0


class ConnectionInfo(Struct, frozen=True):
    """Its text form leaves the key out."""

    url: str
    key: str
    workspace: str | None
    # None: from the environment alone.
    profile: str | None
    allow_http: bool = False

    def __repr__(self) -> str:
        return f"ConnectionInfo({self.url!r}, profile={self.profile!r})"


def connect(profile: str | None, environ: Mapping[str, str] = os.environ) -> ConnectionInfo:
    if profile is not None:
        return _of_profile(profile)
    url, key, workspace = (environ.get(name) or None for name in (URL, KEY, WORKSPACE))
    allow_http = environ.get(ALLOW_HTTP) == "1"
    if url is not None and key is not None:
        return ConnectionInfo(url, key, workspace, None, allow_http)
    name = environ.get(PROFILE) or profiles.DEFAULT
    if name == profiles.DEFAULT and name not in profiles.read_all():
        if key is None:
            raise Complaint(f"not logged in: run `qd login`, or set {URL} and {KEY}", Exit.NOT_ALLOWED)
        return ConnectionInfo(LOCAL_URL, key, workspace, None)
    stored = _of_profile(name)
    if key is not None:
        # Another key may belong to another workspace, so that of the profile says nothing about it.
        return ConnectionInfo(stored.url, key, workspace, stored.profile, stored.allow_http or allow_http)
    if url is not None and url.rstrip("/") != stored.url.rstrip("/"):
        raise Complaint(
            f"{URL} is set without {KEY}: the key of the profile {name} is for {stored.url} only", Exit.WRONG_INPUT
        )
    return ConnectionInfo(
        stored.url, stored.key, workspace or stored.workspace, stored.profile, stored.allow_http or allow_http
    )


def _of_profile(name: str) -> ConnectionInfo:
    login = profiles.read(name)
    return ConnectionInfo(login.url, login.key, login.workspace, name, login.allow_http)


def client_of(info: ConnectionInfo) -> "Client":
    from quarterdeck.client import Client, InvalidArgument

    try:
        return Client(
            info.url,
            info.key,
            workspace_id=info.workspace,
            retries=_RETRIES,
            retry_seconds=_RETRY_SECONDS,
            allow_http=info.allow_http,
        )
    except InvalidArgument as fault:
        # It names the parameters of a function; here they come from elsewhere.
        words = fault.message.replace("base_url", "the address").replace("workspace_id", "the workspace")
        words = words.replace("allow_http=True", f"`qd login --allow-http` or {ALLOW_HTTP}=1")
        raise Complaint(words, Exit.WRONG_INPUT) from None


def open_client(profile: str | None) -> "Client":
    return client_of(connect(profile))

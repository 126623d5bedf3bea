"""Where the commands that use the API find the server, and who they are there."""

import os

from msgspec import Struct

from quarterdeck.settings import SettingsError

_LOCAL = "http://127.0.0.1:8700"


class ConnectionInfo(Struct, frozen=True):
    url: str
    key: str
    workspace: str | None


def connect(profile: str | None) -> ConnectionInfo:
    if profile is not None:
        raise SettingsError("there are no profiles yet: set QUARTERDECK_URL, QUARTERDECK_KEY and QUARTERDECK_WORKSPACE")
    key = os.environ.get("QUARTERDECK_KEY")
    if not key:
        raise SettingsError("QUARTERDECK_KEY is not set")
    return ConnectionInfo(os.environ.get("QUARTERDECK_URL") or _LOCAL, key, os.environ.get("QUARTERDECK_WORKSPACE"))

"""`qd login`, `qd logout` and `qd whoami`."""

import os
import sys
from collections.abc import Mapping
from getpass import getpass
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import asdict

from quarterdeck.cli import connection, profiles
from quarterdeck.cli.connection import ConnectionInfo
from quarterdeck.cli.exit_codes import Complaint, Exit
from quarterdeck.cli.options import AsJson, Profile, line, uuid
from quarterdeck.cli.output import actor, note, print_facts, print_json, say, when

if TYPE_CHECKING:
    from quarterdeck.auth.model import CallerBody


def login(
    url: Annotated[str | None, typer.Option(parser=line, metavar="URL", help="Address of the server.")] = None,
    key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Others on this machine can see it here: better be asked, or pipe it in."),
    ] = None,
    workspace: Annotated[
        str | None, typer.Option(metavar="ID", help="Id of the workspace. Default: the one that the key belongs to.")
    ] = None,
    profile: Profile = None,
    allow_http: Annotated[
        bool, typer.Option("--allow-http", help="Send the key in the clear to another machine.")
    ] = False,
) -> None:
    """Keep an address and a key for all other commands. Asks for what is missing; a key can be piped in."""
    name = profile or os.environ.get(connection.PROFILE) or profiles.DEFAULT
    environ = _environment_for(url)
    url = url or environ.get(connection.URL) or _asked_url()
    key = key or _piped_key()
    if not key:
        key = environ.get(connection.KEY) or _asked_key()
        # It stands beside the key of the environment and says nothing about another.
        workspace = workspace or environ.get(connection.WORKSPACE)
    info = ConnectionInfo(url, key, str(uuid(workspace)) if workspace else None, name, allow_http)
    if key.startswith("qds_"):
        raise Complaint("this is the token of a session: an API key is needed", Exit.NOT_ALLOWED)
    caller = _caller(info)
    profiles.store(name, profiles.Login(url, key, str(caller.workspace_id), allow_http))
    say(f"logged in to {caller.workspace_name} at {url} as {caller.prefix}… (profile {name})")
    if profile is None and os.environ.get(connection.KEY, key) != key:
        note(f"{connection.KEY} is set in this shell and goes before the profile. `unset {connection.KEY}` ends that.")


def logout(profile: Profile = None) -> None:
    """Forget a login. The key itself goes on working: see `qd keys revoke`."""
    name = profile or os.environ.get(connection.PROFILE) or profiles.DEFAULT
    profiles.forget(name)
    say(f"forgot the profile {name}")


def whoami(profile: Profile = None, as_json: AsJson = False) -> None:
    """Show which server, workspace and credential the other commands use."""
    info = connection.connect(profile)
    caller = _caller(info)
    if as_json:
        print_json({"url": info.url, "profile": info.profile, **asdict(caller)})
        return
    print_facts(
        [
            ("server", info.url),
            ("workspace", f"{caller.workspace_id} {caller.workspace_name}"),
            ("key" if caller.session_id is None else "token", f"{caller.prefix}… {caller.label or ''}".strip()),
            ("session", None if caller.session_id is None else str(caller.session_id)),
            ("permissions", ", ".join(caller.permissions) or "none"),
            ("expires", when(caller.expires_at) or "never"),
            ("made by", actor(caller.user)),
            ("profile", info.profile or "none: from the environment"),
        ]
    )


def _caller(info: ConnectionInfo) -> "CallerBody":
    with connection.client_of(info) as client:
        return client.whoami()


def _environment_for(url: str | None) -> Mapping[str, str]:
    """What is set for one server is not told to another."""
    stated = os.environ.get(connection.URL)
    return {} if url and stated and url.rstrip("/") != stated.rstrip("/") else os.environ


def _asked_url() -> str:
    if not sys.stdin.isatty():
        return connection.LOCAL_URL
    return line(typer.prompt("Server", default=connection.LOCAL_URL, err=True))


def _piped_key() -> str:
    return "" if sys.stdin.isatty() else sys.stdin.readline().strip()


def _asked_key() -> str:
    # Not typer's own question: that asks first and hides what is typed a moment later.
    key = getpass("Key: ", sys.stderr) if sys.stdin.isatty() else ""
    if not key.strip():
        raise typer.BadParameter(f"no key: give it when asked, pipe it in, or set {connection.KEY}")
    return key.strip()

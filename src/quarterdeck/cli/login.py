"""`qd login`, `qd logout` and `qd whoami`."""

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import asdict

from quarterdeck.cli import connection, profiles
from quarterdeck.cli.connection import ConnectionInfo
from quarterdeck.cli.exit_codes import CliError, ExitCode, UsageError
from quarterdeck.cli.options import AsJson, Profile, line, uuid
from quarterdeck.cli.output import actor_name, date_text, note, print_facts, print_json, say

if TYPE_CHECKING:
    from quarterdeck.client.models import CallerBody


def login(
    url: Annotated[str | None, typer.Option(parser=line, metavar="URL", help="Address of the server.")] = None,
    key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="API key. Other users can see arguments: prefer the prompt or a pipe."),
    ] = None,
    workspace: Annotated[
        str | None, typer.Option(metavar="ID", help="ID of the workspace. Default: the workspace of the key.")
    ] = None,
    profile: Profile = None,
    allow_http: Annotated[
        bool, typer.Option("--allow-http", help="Allow sending the key unencrypted to another machine.")
    ] = False,
) -> None:
    """Save a server address and an API key. Prompts for missing values; the key can also be piped in."""
    name = profile or os.environ.get(connection.PROFILE) or profiles.DEFAULT
    environ = _environment_of(url)
    url = url or environ.get(connection.URL) or _prompt_url()
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"{url!r} is not a URL such as https://quarterdeck.example.com")
    key = key or _piped_key()
    if not key:
        key = environ.get(connection.KEY) or _prompt_key()
        # Only valid together with the key of the environment.
        workspace = workspace or environ.get(connection.WORKSPACE)
    info = ConnectionInfo(url, key, str(uuid(workspace)) if workspace else None, name, allow_http)
    if key.startswith("qds_"):
        raise CliError("This is a session token. `qd login` needs an API key.", ExitCode.NOT_ALLOWED)
    caller = _caller(info)
    profiles.save(name, profiles.Login(url, key, str(caller.workspace_id), allow_http))
    say(f"Logged in to {caller.workspace_name} at {url} with key {caller.prefix}… (profile {name})")
    if profile is None and os.environ.get(connection.KEY, key) != key:
        note(
            f"{connection.KEY} overrides the saved login. Run `unset {connection.KEY}` to use the login in this shell."
        )


def logout(profile: Profile = None) -> None:
    """Delete a saved login. The key keeps working until you revoke it with `qd keys revoke`."""
    name = profile or os.environ.get(connection.PROFILE) or profiles.DEFAULT
    profiles.delete(name)
    say(f"Deleted the profile {name}")


def whoami(profile: Profile = None, as_json: AsJson = False) -> None:
    """Show the server, workspace and key that commands use."""
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
            ("expires", date_text(caller.expires_at) or "never"),
            ("created by", actor_name(caller.user)),
            ("profile", info.profile or "none (environment)"),
        ]
    )


def _caller(info: ConnectionInfo) -> "CallerBody":
    with connection.client_for(info) as client:
        return client.whoami()


def _environment_of(url: str | None) -> Mapping[str, str]:
    """The environment, or nothing if it is meant for another server."""
    its_url = os.environ.get(connection.URL)
    return {} if url and its_url and url.rstrip("/") != its_url.rstrip("/") else os.environ


def _prompt_url() -> str:
    if not sys.stdin.isatty():
        return connection.LOCAL_URL
    return line(typer.prompt("Server", default=connection.LOCAL_URL, err=True))


def _piped_key() -> str:
    return "" if sys.stdin.isatty() else sys.stdin.readline().strip()


def _prompt_key() -> str:
    from getpass import getpass

    # Not typer's prompt, which turns the echo off only after it has asked.
    key = getpass("Key: ", sys.stderr) if sys.stdin.isatty() else ""
    if not key.strip():
        raise UsageError(f"No key given. Enter it at the prompt, pipe it in, or set {connection.KEY}.")
    return key.strip()

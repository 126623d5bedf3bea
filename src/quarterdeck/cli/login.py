"""`qd login`, `qd logout` and `qd whoami`."""

import os
import sys
from collections.abc import Mapping
from getpass import getpass
from typing import Annotated

import typer
from msgspec.structs import asdict

from quarterdeck.cli import connection
from quarterdeck.cli.connection import ConnectionInfo
from quarterdeck.cli.errors import CliError, ExitCode
from quarterdeck.cli.options import AsJson, Profile, flag, line, option, uuid
from quarterdeck.cli.output import note, print_facts, print_json, say
from quarterdeck.client.models import CallerBody


def login(
    url: Annotated[str | None, option("URL", "Address of the server.", parser=line)] = None,
    key: Annotated[
        str | None, option("KEY", "API key. Other users can see arguments: prefer the prompt or a pipe.")
    ] = None,
    workspace: Annotated[str | None, option("ID", "ID of the workspace. Default: the workspace of the key.")] = None,
    profile: Profile = None,
    allow_http: Annotated[bool, flag("--allow-http", "Allow sending the key unencrypted to another machine.")] = False,
) -> None:
    """Save a server address and an API key. Prompts for missing values; the key can also be piped in."""
    name = profile or os.environ.get(connection.PROFILE) or connection.DEFAULT_PROFILE
    environ = _environment_of(url)
    url = url or environ.get(connection.URL) or _prompt_url()
    if not url.startswith(("http://", "https://")):
        raise CliError(f"{url!r} is not a URL such as https://quarterdeck.example.com")
    key = key or _piped_key()
    if not key:
        key = environ.get(connection.KEY) or _prompt_key()
        # Only valid together with the key of the environment.
        workspace = workspace or environ.get(connection.WORKSPACE)
    info = ConnectionInfo(url, key, str(uuid(workspace)) if workspace else None, name, allow_http)
    if key.startswith("qds_"):
        raise CliError("This is a session token. `qd login` needs an API key.", ExitCode.NOT_ALLOWED)
    caller = _caller(info)
    connection.save_profile(name, connection.Login(url, key, str(caller.workspace_id), allow_http))
    say(f"Logged in to {caller.workspace_name} at {url} with key {caller.prefix}… (profile {name})")
    if profile is None and os.environ.get(connection.KEY, key) != key:
        note(
            f"{connection.KEY} overrides the saved login. Run `unset {connection.KEY}` to use the login in this shell."
        )


def logout(profile: Profile = None) -> None:
    """Delete a saved login. The key keeps working until you revoke it with `qd keys revoke`."""
    name = profile or os.environ.get(connection.PROFILE) or connection.DEFAULT_PROFILE
    connection.delete_profile(name)
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
            ("session", caller.session_id),
            ("permissions", ", ".join(caller.permissions) or "none"),
            ("expires", caller.expires_at or "never"),
            ("created by", caller.user),
            ("profile", info.profile or "none (environment)"),
        ]
    )


def _caller(info: ConnectionInfo) -> CallerBody:
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
    # Not typer's prompt, which turns the echo off only after it has asked.
    key = getpass("Key: ", sys.stderr) if sys.stdin.isatty() else ""
    if not key.strip():
        raise CliError(f"No key given. Enter it at the prompt, pipe it in, or set {connection.KEY}.")
    return key.strip()

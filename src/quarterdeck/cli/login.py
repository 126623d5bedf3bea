"""`qd login`, `qd logout` and `qd whoami`."""

import os
import platform
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from getpass import getpass
from typing import Annotated
from urllib.parse import quote

import typer
from msgspec.structs import asdict, replace

from quarterdeck.cli import connection, find
from quarterdeck.cli.connection import ConnectionInfo, Login, client_for, is_device, profile_name
from quarterdeck.cli.errors import CliError, ExitCode
from quarterdeck.cli.options import AsJson, Profile, flag, line, option, uuid
from quarterdeck.cli.output import actor_name, note, print_facts, print_json, printable, say
from quarterdeck.client import Client, ConnectionFailed, Internal, NotFound, QuarterdeckError, Unauthorized
from quarterdeck.client.models import CallerBody, DeviceCodeBody, DeviceCodeState, RedeemedDeviceCodeBody

# Between two requests, whatever the server asks for.
_MIN_INTERVAL_SECONDS = 1
_MAX_INTERVAL_SECONDS = 30
# Failed requests in a row, after which the server counts as gone.
_MAX_FAILURES = 10
_MAX_HOST_CHARACTERS = 100


def login(
    url: Annotated[str | None, option("URL", "Address of the server.", parser=line)] = None,
    key: Annotated[bool, flag("--key", "Save an API key. Prompts for it; it can also be piped in.")] = False,
    workspace: Annotated[
        str | None, option("WORKSPACE", "ID or name of the workspace to act in. With --key: its ID.")
    ] = None,
    no_browser: Annotated[bool, flag("--no-browser", "Do not open the browser.")] = False,
    profile: Profile = None,
    allow_http: Annotated[bool, flag("--allow-http", "Allow sending the key unencrypted to another machine.")] = False,
) -> None:
    """Sign in with a browser, or save an API key. The login is saved for later commands."""
    name = profile_name(profile)
    # Fails now if logins cannot be read, and not after the approval.
    before = connection.read_profiles().get(name)
    environ = _environment_of(url)
    url = url or environ.get(connection.URL) or _prompt_url()
    if not url.startswith(("http://", "https://")):
        raise CliError(f"{url!r} is not a URL such as https://quarterdeck.example.com")
    if key:
        saved = _login_with_key(name, url, workspace, environ, allow_http=allow_http)
    else:
        saved = _login_with_browser(name, url, workspace, allow_http=allow_http, opens_browser=not no_browser)
    if before is not None and before.key != saved.key:
        _end_replaced(before)
    if profile is None and os.environ.get(connection.KEY, saved.key) != saved.key:
        note(
            f"{connection.KEY} overrides the saved login. Run `unset {connection.KEY}` to use the login in this shell."
        )


def _login_with_key(
    name: str, url: str, workspace: str | None, environ: Mapping[str, str], *, allow_http: bool
) -> Login:
    key = _piped_key()
    if not key:
        key = environ.get(connection.KEY) or _prompt_key()
        # Only valid together with the key of the environment.
        workspace = workspace or environ.get(connection.WORKSPACE)
    info = ConnectionInfo(url, key, str(uuid(workspace)) if workspace else None, name, allow_http)
    if key.startswith("qds_"):
        raise CliError("This is a session token. `qd login --key` needs an API key.", ExitCode.NOT_ALLOWED)
    caller = _caller(info)
    email = caller.user.primary_email if is_device(key) else None
    saved = Login(url, key, str(caller.workspace_id), allow_http, email)
    connection.save_profile(name, saved)
    say(f"Logged in to {caller.workspace_name} at {url} with key {caller.prefix}… (profile {name})")
    return saved


def _login_with_browser(name: str, url: str, workspace: str | None, *, allow_http: bool, opens_browser: bool) -> Login:
    with client_for(ConnectionInfo(url, None, None, name, allow_http)) as client:
        host = printable(platform.node())[:_MAX_HOST_CHARACTERS]
        code = client.create_device_code(device_name=f"qd on {host or 'unknown'}")
        page = f"{client.base_url}/#/devices/approve?code={quote(code.user_code, safe='')}"
        note(f"Open this page in a browser, check the code {code.user_code} and approve it:\n\n  {page}\n")
        if opens_browser:
            _open_browser(page)
        with _waiting():
            approved = _wait_for_answer(client, code)
    assert approved.secret is not None
    email = None if approved.user is None else approved.user.primary_email
    saved = Login(url, approved.secret, None, allow_http, email)
    with client_for(ConnectionInfo(url, saved.key, None, name, allow_http)) as client:
        # Saved at once: the server shows the credential only this time.
        connection.save_profile(name, saved)
        found = find.membership(client, workspace)
        person = client.get_profile().user
    saved = replace(saved, workspace=str(found.workspace_id))
    connection.save_profile(name, saved)
    say(f"Logged in to {found.workspace_name} at {url} as {actor_name(person)} (profile {name})")
    return saved


def _wait_for_answer(client: Client, code: DeviceCodeBody) -> RedeemedDeviceCodeBody:
    failures = 0
    while True:
        time.sleep(min(max(code.interval_seconds, _MIN_INTERVAL_SECONDS), _MAX_INTERVAL_SECONDS))
        try:
            answer = client.redeem_device_code(device_code=code.device_code)
        except NotFound:
            raise CliError("The code has expired. Run `qd login` again.", ExitCode.NOT_ALLOWED) from None
        except (ConnectionFailed, Internal):
            failures += 1
            if failures > _MAX_FAILURES:
                raise
            continue
        failures = 0
        if answer.state == DeviceCodeState.DENIED:
            raise CliError("The code was denied. Run `qd login` to try again.", ExitCode.NOT_ALLOWED)
        if answer.state == DeviceCodeState.APPROVED:
            if not is_device(answer.secret):
                raise CliError("The server sent no valid credential. Is this a Quarterdeck server?")
            return answer


@contextmanager
def _waiting() -> Iterator[None]:
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status("Waiting for the approval. Press Ctrl-C to cancel.", spinner="line"):
        yield


def _open_browser(page: str) -> None:
    """Only where a person sits, and only one with windows: a browser in the terminal would hide the code."""
    has_windows = not sys.platform.startswith("linux") or any(
        map(os.environ.get, ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"))
    )
    if not sys.stderr.isatty() or not has_windows:
        return
    import webbrowser

    with suppress(webbrowser.Error, OSError):
        webbrowser.open(page)


def _end_replaced(before: Login) -> None:
    """The device of the login that was replaced. It may be gone, and so may its server."""
    if is_device(before.key):
        info = ConnectionInfo(before.url, before.key, None, None, before.allow_http)
        with suppress(QuarterdeckError, CliError), client_for(info, is_hurried=True) as client:
            client.sign_out()


def logout(
    everywhere: Annotated[bool, flag("--everywhere", "Sign out all your browsers and command lines too.")] = False,
    profile: Profile = None,
) -> None:
    """Sign out and delete a saved login. An API key keeps working until you revoke it with `qd keys revoke`."""
    name = profile_name(profile)
    saved = connection.read_profile(name)
    if everywhere and not is_device(saved.key):
        raise CliError(f"The profile {name} is an API key, which is signed in nowhere. See `qd keys list`.")
    if everywhere:
        with connection.open_client(name) as client:
            client.end_all_devices()
    failure = _sign_out(name) if is_device(saved.key) and not everywhere else None
    connection.delete_profile(name)
    if failure is not None:
        hint = f"End this device in the console at {saved.url.rstrip('/')}/#/profile."
        raise CliError(
            f"Deleted the profile {name}, but the server did not sign it out: {failure.message} {hint}",
            ExitCode.UNSUCCESSFUL,
        )
    say(f"Signed out everywhere, and deleted the profile {name}" if everywhere else f"Deleted the profile {name}")


def _sign_out(name: str) -> QuarterdeckError | None:
    """Returns why it failed."""
    try:
        with client_for(connection.connect(name)) as client:
            client.sign_out()
    except Unauthorized:
        # It has ended before.
        return None
    except QuarterdeckError as error:
        return error
    return None


def whoami(profile: Profile = None, as_json: AsJson = False) -> None:
    """Show the server, workspace, person and key in use."""
    info = connection.connect(profile)
    with connection.explained(info):
        caller = _caller(info)
    if as_json:
        print_json({"url": info.url, "profile": info.profile, **asdict(caller)})
        return
    kind = {"api_key": "key", "session_token": "token"}.get(caller.kind, caller.kind)
    person = caller.user.primary_email
    print_facts(
        [
            ("server", info.url),
            ("workspace", f"{caller.workspace_id} {caller.workspace_name}"),
            ("role", caller.role),
            (kind, f"{caller.prefix}… {caller.label or ''}".strip()),
            ("session", caller.session_id),
            ("permissions", ", ".join(caller.permissions) or "none"),
            ("expires", caller.expires_at or "never"),
            ("person" if kind == "device" else "created by", caller.user),
            ("email", person if person != actor_name(caller.user) else None),
            ("profile", info.profile or "none (environment)"),
        ]
    )


def _caller(info: ConnectionInfo) -> CallerBody:
    with client_for(info) as client:
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

"""`qd`: all commands, and how errors become one line on stderr and an exit code.

The module of a command is imported when the command is called, so that `qd` starts fast and commands for users work
without the server's dependencies.
"""

import gc
import io
import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from quarterdeck import __version__
from quarterdeck.cli.errors import ExitCode

SERVER_COMMANDS = ("serve", "api", "worker", "migrate", "sweep", "admin")
_PACKAGE = "quarterdeck.cli."

# Name, target and summary: the help of a group, or the beginning of the command's docstring, which a test compares.
COMMANDS = (
    ("login", "login:login", "Sign in with a browser, or save an API key."),
    ("logout", "login:logout", "Sign out and delete a saved login."),
    ("whoami", "login:whoami", "Show the server, workspace, person and key in use."),
    ("chat", "chat:chat", "Chat in a session."),
    ("watch", "watch:watch", "Follow the log of a session."),
    ("send", "send:send", "Send a message."),
    ("sessions", "sessions:app", "Manage sessions."),
    ("runs", "runs:app", "List, show, cancel and retry runs."),
    ("actions", "actions:app", "List and answer actions, for which runs wait."),
    ("usage", "workspace:usage", "Show tokens and cost by day, session, model or API key."),
    ("retention", "workspace:retention", "Show or set how many days the data of the workspace is kept."),
    ("models", "workspace:models", "List the models that sessions can use."),
    ("files", "files:app", "List, download and upload files."),
    ("skills", "skills:app", "Create, check, push, compare and download skills."),
    ("agents", "agents:app", "Create, push, compare and roll back agents."),
    ("mcp", "mcp:app", "Manage MCP servers, whose tools agents can call."),
    ("credentials", "credentials:app", "Manage secrets for MCP servers."),
    ("keys", "keys:app", "Manage API keys."),
    ("tokens", "keys:tokens_app", "Manage session tokens, which work in one session only."),
    ("workspaces", "people:workspaces_app", "List your workspaces, and choose the one that commands use."),
    ("members", "people:members_app", "Manage the members of the workspace and their roles."),
    ("invitations", "people:invitations_app", "List and revoke invitations."),
    ("devices", "people:devices_app", "List and sign out your browsers and command lines."),
    ("profile", "people:profile", "Show or change your name and password."),
    ("trusted-jobs", "trusted_jobs:app", "Let CI jobs push skills without a stored secret."),
    ("webhooks", "webhooks:app", "Manage webhooks and their deliveries."),
    ("audit", "workspace:audit", "List changes: who did what, and when."),
    ("serve", "serve:serve", "Run the API, a worker and a database."),
    ("api", "serve:api", "Run only the API."),
    ("worker", "serve:worker", "Run only a worker."),
    ("migrate", "serve:migrate", "Migrate the database to the schema of this release."),
    ("sweep", "serve:sweep", "Delete expired data now."),
    ("admin", "admin:app", "For operators: workspaces, members, keys, backups."),
)


class LazyCommand(TyperCommand):
    """A command whose module is imported when the command is called. `target` is `module:name` of a Typer app or of a
    function. `summary` is shown in the list of commands."""

    def __init__(self, name: str, target: str, summary: str) -> None:
        super().__init__(name, help=summary, rich_markup_mode=None)
        self._target = target

    def load(self) -> TyperCommand | TyperGroup:
        module, _, attribute = self._target.partition(":")
        found = getattr(import_module(module), attribute)
        if isinstance(found, typer.Typer):
            group = typer.main.get_group(found)
            group.help = self.help
            return group
        app = typer.Typer(rich_markup_mode=None, add_completion=False)
        app.command(self.name)(found)
        command = typer.main.get_command(app)
        assert isinstance(command, TyperCommand)
        return command

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context is that of the loaded command, which typer then invokes. A group without a verb shows help."""
        loaded = self.load()
        if isinstance(loaded, TyperGroup) and not args and not extra.get("resilient_parsing"):
            args = ["--help"]
        return loaded.make_context(info_name, args, parent, **extra)


app = typer.Typer(
    name="qd",
    no_args_is_help=True,
    rich_markup_mode=None,
    # Pretty tracebacks show local variables, which may hold secrets.
    pretty_exceptions_enable=False,
    help="Quarterdeck, an agent workspace.",
)


def _show_version(given: bool) -> None:
    if given:
        typer.echo(f"qd {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options of `qd` itself."""


def root() -> TyperGroup:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    for name, target, summary in COMMANDS:
        group.add_command(LazyCommand(name, _PACKAGE + target, summary))
    return group


def main() -> None:
    _prepare_streams()
    code = _flush(run(sys.argv[1:]))
    # Everything is freed by the end of the process. Searching it for cycles first takes a fifth of a short command.
    gc.freeze()
    sys.exit(code)


def run(arguments: list[str]) -> int:
    try:
        code = int(root()(arguments or ["--help"], prog_name="qd", standalone_mode=False) or 0)
        # typer returns this code after Ctrl-C.
        return _fail("Interrupted", ExitCode.INTERRUPTED) if code == ExitCode.INTERRUPTED else code
    except typer.Exit as exit_:
        return exit_.exit_code
    except KeyboardInterrupt:
        # While an error or an import was handled.
        return _fail("Interrupted", ExitCode.INTERRUPTED)
    except SystemExit as exit_:
        # Completion ends this way.
        return int(exit_.code or 0)
    except typer.Abort:
        # A question was answered with no.
        return _fail("Cancelled", ExitCode.INTERRUPTED)
    except typer.TyperException as error:
        return _fail(error.format_message(), ExitCode.INVALID_INPUT)
    except Exception as error:
        from quarterdeck.cli.errors import message_and_code

        if _needs_server(error):
            return _fail("This command needs the server: pip install 'quarterdeck[server]'", ExitCode.INVALID_INPUT)
        found = message_and_code(error)
        if found is None:
            raise
        return _fail(*found)


def _needs_server(error: Exception) -> bool:
    return isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("quarterdeck")


def _fail(message: str, code: ExitCode) -> int:
    from quarterdeck.cli.output import printable

    sys.stderr.write("qd: " + printable(" ".join(message.split())) + "\n")
    return code


def _prepare_streams() -> None:
    """For streams that the caller has closed, and for other character sets."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            # Closed by the caller. Opened here, because the next opened file would get its descriptor.
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper) and stream is not sys.stderr:
            # Replace characters that cannot be encoded instead of failing. stderr does so by default.
            stream.reconfigure(errors="replace")


def _flush(code: int) -> int:
    """Flushes stdout and stderr and returns the exit code: another one if the disk is full."""
    try:
        with suppress(OSError):
            sys.stderr.flush()
        sys.stdout.flush()
        return code
    except OSError:
        # Python would flush again at exit and print its own error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return code or ExitCode.INVALID_INPUT

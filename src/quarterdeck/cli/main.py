"""`qd`: all commands, and how errors become one line on stderr and an exit code.

The module of a command is imported when the command is called, so that `qd` starts fast and commands for users work
without the server's dependencies.
"""

import sys
from typing import Annotated

import typer
from typer.core import TyperGroup

from quarterdeck import __version__
from quarterdeck.cli.exit_codes import ExitCode
from quarterdeck.cli.lazy_command import LazyCommand

SERVER_COMMANDS = ("serve", "api", "worker", "migrate", "sweep", "admin")
_PACKAGE = "quarterdeck.cli."

# Name, target and summary. The summary is that of the command itself, which a test compares.
COMMANDS = (
    ("login", "login:login", "Save a server address and an API key."),
    ("logout", "login:logout", "Delete a saved login."),
    ("whoami", "login:whoami", "Show the server, workspace and key that commands use."),
    ("chat", "chat:chat_command", "Chat in a session."),
    ("watch", "chat:watch_command", "Follow the log of a session."),
    ("send", "send:send", "Send a message."),
    ("sessions", "sessions:app", "Manage sessions."),
    ("runs", "runs:app", "List, show, cancel and retry runs."),
    ("actions", "actions:app", "List and answer actions, for which runs wait."),
    ("usage", "usage:usage", "Show tokens and cost by day, session, model or API key."),
    ("retention", "retention:retention", "Show or set how many days the data of the workspace is kept."),
    ("models", "models:models", "List the models that sessions can use."),
    ("files", "files:app", "List, download and upload files."),
    ("skills", "skills:app", "Create, check, push, compare and download skills."),
    ("agents", "agents:app", "Create, push, compare and roll back agents."),
    ("mcp", "mcp:app", "Manage MCP servers, whose tools agents can call."),
    ("credentials", "credentials:app", "Manage secrets for MCP servers."),
    ("keys", "keys:app", "Manage API keys."),
    ("tokens", "tokens:app", "Manage session tokens, which work in one session only."),
    ("webhooks", "webhooks:app", "Manage webhooks and their deliveries."),
    ("audit", "audit:audit", "List changes: who did what, and when."),
    ("serve", "server_commands:serve", "Run the API, a worker and a database."),
    ("api", "server_commands:api", "Run only the API."),
    ("worker", "server_commands:worker", "Run only a worker."),
    ("migrate", "server_commands:migrate", "Migrate the database to the schema of this release."),
    ("sweep", "server_commands:sweep", "Delete expired data now."),
    ("admin", "admin:app", "For operators: workspaces, members, keys, backup and restore."),
)

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
        from quarterdeck.cli.error_messages import message_and_code

        if _needs_server(arguments, error):
            return _fail("This command needs the server: pip install 'quarterdeck[server]'", ExitCode.INVALID_INPUT)
        found = message_and_code(error)
        if found is None:
            raise
        return _fail(*found)


def is_server_command(arguments: list[str]) -> bool:
    return bool(arguments) and arguments[0] in SERVER_COMMANDS


def _needs_server(arguments: list[str], error: Exception) -> bool:
    is_missing_package = isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("quarterdeck")
    return is_missing_package and is_server_command(arguments)


def _fail(message: str, code: ExitCode) -> int:
    from quarterdeck.cli.output import printable

    sys.stderr.write("qd: " + printable(" ".join(message.split())) + "\n")
    return code

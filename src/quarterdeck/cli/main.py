"""`qd`: all commands, and how errors become one line on stderr and an exit code.

Commands import what they need when they run, so that `qd --help` is fast and commands for users work without the
server's dependencies.
"""

import os
import sys
from typing import Annotated

import msgspec
import typer

from quarterdeck.cli import admin, chat, keys, login, models, runs, sessions, skills
from quarterdeck.cli.exit_codes import ExitCode
from quarterdeck.cli.output import printable
from quarterdeck.core.settings import Settings, read_settings, with_server

SERVER_COMMANDS = ("serve", "api", "worker", "migrate", "sweep", "admin")

app = typer.Typer(
    name="qd",
    no_args_is_help=True,
    rich_markup_mode=None,
    # Pretty tracebacks show local variables, which may hold secrets.
    pretty_exceptions_enable=False,
    help="Quarterdeck, an agent workspace.",
)
app.command()(login.login)
app.command()(login.logout)
app.command()(login.whoami)
app.add_typer(sessions.app, name="sessions")
app.command()(sessions.send)
app.add_typer(runs.app, name="runs")
app.command()(models.models)
app.add_typer(skills.app, name="skills")
app.add_typer(keys.app, name="keys")
app.add_typer(admin.app, name="admin")
app.add_typer(chat.app)

Host = Annotated[str | None, typer.Option(metavar="ADDRESS", help="Address to listen on. Default: 127.0.0.1.")]
PortNumber = Annotated[int | None, typer.Option(metavar="PORT", help="Port to listen on. Default: 8700.")]
DataDir = Annotated[str | None, typer.Option("--data", metavar="DIR", help="Data folder. Default: ./data.")]


@app.command()
def serve(host: Host = None, port: PortNumber = None, data: DataDir = None) -> None:
    """Run the API, a worker and a database (unless QUARTERDECK_DATABASE_URL is set)."""
    from quarterdeck.cli.serve import serve_everything

    raise typer.Exit(serve_everything(_settings(host, port, data)))


@app.command()
def api(host: Host = None, port: PortNumber = None, data: DataDir = None) -> None:
    """Run only the API, on the database of QUARTERDECK_DATABASE_URL."""
    from quarterdeck.cli.serve import serve_api_alone

    raise typer.Exit(serve_api_alone(_settings(host, port, data)))


@app.command()
def worker(data: DataDir = None) -> None:
    """Run only a worker, on the database of QUARTERDECK_DATABASE_URL."""
    from quarterdeck.cli.serve import run_worker_alone

    raise typer.Exit(run_worker_alone(_settings(data=data)))


@app.command()
def migrate(data: DataDir = None) -> None:
    """Migrate the database to the schema of this release."""
    from quarterdeck.cli.database import migrate_now

    applied = migrate_now(_settings(data=data))
    typer.echo(f"Applied: {', '.join(applied)}" if applied else "The schema is up to date.")


@app.command()
def sweep(data: DataDir = None) -> None:
    """Delete expired data now. A running server does this every hour."""
    from quarterdeck.cli.database import delete_expired_now

    deleted = delete_expired_now(_settings(data=data))
    counts = (f"{count} {name.replace('_', ' ')}" for name, count in msgspec.structs.asdict(deleted).items())
    typer.echo(f"Deleted {', '.join(counts)}")


def run(arguments: list[str]) -> int:
    try:
        code = int(app(arguments or ["--help"], prog_name="qd", standalone_mode=False) or 0)
        # typer returns this code after Ctrl-C.
        return _fail("interrupted", ExitCode.INTERRUPTED) if code == ExitCode.INTERRUPTED else code
    except typer.Exit as exit_:
        return exit_.exit_code
    except typer.Abort:
        # A question was answered with no.
        return _fail("cancelled", ExitCode.INTERRUPTED)
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


def _needs_server(arguments: list[str], error: Exception) -> bool:
    is_missing_package = isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("quarterdeck")
    return is_missing_package and arguments[0] in SERVER_COMMANDS


def _settings(host: str | None = None, port: int | None = None, data: str | None = None) -> Settings:
    return with_server(read_settings(os.environ), host=host, port=port, data_dir=data)


def _fail(message: str, code: ExitCode) -> int:
    sys.stderr.write("qd: " + printable(" ".join(message.split())) + "\n")
    return code

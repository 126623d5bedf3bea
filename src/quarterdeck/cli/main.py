"""`qd`: every command in one list. A fault is one line on stderr and an exit code, never a traceback.

What a command needs is imported when it runs: `qd --help` must not wait for a web server to load.
"""

import os
import sys
from typing import Annotated

import msgspec
import typer

from quarterdeck.cli import admin, chat, keys, login, runs, sessions, skills
from quarterdeck.cli.exit_codes import Exit
from quarterdeck.cli.output import printable
from quarterdeck.core.settings import Settings, read_settings, with_server

app = typer.Typer(
    name="qd",
    no_args_is_help=True,
    rich_markup_mode=None,
    # Its pretty tracebacks print local variables, and those may be secrets.
    pretty_exceptions_enable=False,
    help="Quarterdeck, an agent workspace.",
)
app.command()(login.login)
app.command()(login.logout)
app.command()(login.whoami)
app.add_typer(sessions.app, name="sessions")
app.command()(sessions.send)
app.add_typer(runs.app, name="runs")
app.add_typer(skills.app, name="skills")
app.add_typer(keys.app, name="keys")
app.add_typer(admin.app, name="admin")
app.add_typer(chat.app)

Host = Annotated[str | None, typer.Option(help="Address to serve on. Default: 127.0.0.1.")]
PortNumber = Annotated[int | None, typer.Option(help="Port to serve on. Default: 8700.")]
DataDir = Annotated[str | None, typer.Option("--data", help="Folder of everything that is kept. Default: ./data.")]


@app.command()
def serve(host: Host = None, port: PortNumber = None, data: DataDir = None) -> None:
    """Serve everything: the database (unless QUARTERDECK_DATABASE_URL names one) and the API."""
    from quarterdeck.cli.serve import serve_everything

    raise typer.Exit(serve_everything(_settings(host, port, data)))


@app.command()
def api(host: Host = None, port: PortNumber = None, data: DataDir = None) -> None:
    """Serve the API alone, on the database that QUARTERDECK_DATABASE_URL names."""
    from quarterdeck.cli.serve import serve_api_alone

    raise typer.Exit(serve_api_alone(_settings(host, port, data)))


@app.command()
def worker(data: DataDir = None) -> None:
    """Drive runs, on the database that QUARTERDECK_DATABASE_URL names."""
    from quarterdeck.cli.serve import work_alone

    raise typer.Exit(work_alone(_settings(data=data)))


@app.command()
def migrate(data: DataDir = None) -> None:
    """Bring the database to the schema of this release."""
    from quarterdeck.cli.database import migrate_now

    applied = migrate_now(_settings(data=data))
    typer.echo(f"applied: {', '.join(applied)}" if applied else "nothing to do: the schema is current")


@app.command()
def sweep(data: DataDir = None) -> None:
    """Remove now what has had its time. A running server does this every hour by itself."""
    from quarterdeck.cli.database import sweep_now

    swept = sweep_now(_settings(data=data))
    counts = (f"{count} {name.replace('_', ' ')}" for name, count in msgspec.structs.asdict(swept).items())
    typer.echo(f"removed {', '.join(counts)}")


def run(arguments: list[str]) -> int:
    try:
        code = int(app(arguments or ["--help"], prog_name="qd", standalone_mode=False) or 0)
        # So typer tells of Ctrl-C; of a question that was answered with no, as Abort.
        return _complain("stopped", Exit.INTERRUPTED) if code == Exit.INTERRUPTED else code
    except typer.Exit as leave:
        return leave.exit_code
    except typer.Abort:
        return _complain("stopped", Exit.INTERRUPTED)
    except typer.TyperException as fault:
        return _complain(fault.format_message(), Exit.WRONG_INPUT)
    except Exception as fault:
        from quarterdeck.cli.error_messages import explained

        told = explained(fault)
        if told is None:
            raise
        return _complain(*told)


def _settings(host: str | None = None, port: int | None = None, data: str | None = None) -> Settings:
    return with_server(read_settings(os.environ), host=host, port=port, data_dir=data)


def _complain(message: str, code: Exit) -> int:
    sys.stderr.write("qd: " + printable(" ".join(message.split())) + "\n")
    return code

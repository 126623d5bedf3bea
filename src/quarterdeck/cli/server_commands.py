"""`qd serve`, `api`, `worker`, `migrate` and `sweep`: their options. They import the server when they run."""

from typing import Annotated

import typer

from quarterdeck.cli.exit_codes import ExitCode
from quarterdeck.cli.server_settings import server_settings
from quarterdeck.core.settings import Settings

Host = Annotated[str | None, typer.Option(metavar="ADDRESS", help="Address to listen on. Default: 127.0.0.1.")]
PortNumber = Annotated[int | None, typer.Option(metavar="PORT", help="Port to listen on. Default: 8700.")]
DataDir = Annotated[str | None, typer.Option("--data", metavar="DIR", help="Data folder. Default: ./data.")]


def serve(host: Host = None, port: PortNumber = None, data: DataDir = None) -> None:
    """Run the API, a worker and a database (unless QUARTERDECK_DATABASE_URL is set)."""
    from quarterdeck.cli.serve import serve_everything

    raise typer.Exit(serve_everything(_settings(host, port, data)))


def api(host: Host = None, port: PortNumber = None, data: DataDir = None) -> None:
    """Run only the API, on the database of QUARTERDECK_DATABASE_URL."""
    from quarterdeck.cli.serve import serve_api_alone

    raise typer.Exit(serve_api_alone(_settings(host, port, data)))


def worker(data: DataDir = None) -> None:
    """Run only a worker, on the database of QUARTERDECK_DATABASE_URL."""
    from quarterdeck.cli.serve import run_worker_alone

    raise typer.Exit(run_worker_alone(_settings(data=data)))


def migrate(
    check: Annotated[
        bool,
        typer.Option("--check", help="Change nothing. Exit code 0: up to date, 1: migrations pending, 2: error."),
    ] = False,
    data: DataDir = None,
) -> None:
    """Migrate the database to the schema of this release."""
    from quarterdeck.cli.database import UP_TO_DATE, migrate_now, pending_now

    settings = _settings(data=data)
    if not check:
        for line in migrate_now(settings):
            typer.echo(line)
        return
    pending = pending_now(settings)
    typer.echo(f"Pending: {', '.join(pending)}" if pending else UP_TO_DATE)
    raise typer.Exit(ExitCode.UNSUCCESSFUL if pending else 0)


def sweep(data: DataDir = None) -> None:
    """Delete expired data now. A running server does this every hour."""
    from msgspec.structs import asdict

    from quarterdeck.cli.database import delete_expired_now

    deleted = delete_expired_now(_settings(data=data))
    counts = (f"{count} {name.replace('_', ' ')}" for name, count in asdict(deleted).items())
    typer.echo(f"Deleted {', '.join(counts)}")


def _settings(host: str | None = None, port: int | None = None, data: str | None = None) -> Settings:
    return server_settings(host=host, port=port, data=data)

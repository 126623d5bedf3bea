"""`qd trusted-jobs`."""

import os
import sys
from typing import Annotated

import typer

from quarterdeck.cli import completion, connection, find
from quarterdeck.cli.commands import command
from quarterdeck.cli.connection import ConnectionInfo, client_for
from quarterdeck.cli.errors import CliError
from quarterdeck.cli.options import AsJson, Limit, Yes, argument, confirm, flag, line, option, uuid
from quarterdeck.cli.output import Page, Result, cell, say
from quarterdeck.client import Client
from quarterdeck.client.models import TrustedJobBody

app = typer.Typer(rich_markup_mode=None)

TrustedJobId = Annotated[
    str, argument("JOB", "ID, ID prefix or name of the trusted job.", complete=completion.trusted_jobs)
]


@command(app, "list")
def list_(client: Client, limit: Limit = 50) -> Page[TrustedJobBody]:
    """List trusted jobs, newest first."""
    columns = ("ID", "NAME", "SKILL", "ISSUER", "CLAIMS", "LAST USED", "BY")
    return Page(client.iter_trusted_jobs(), limit, columns, _row, "No trusted jobs yet.")


@command(app)
def create(
    client: Client,
    skill: Annotated[str, argument("SKILL", "ID, ID prefix or name of the skill.", complete=completion.skills)],
    issuer: Annotated[str, option("URL", "Issuer of the tokens, as in them.", parser=line)],
    claim: Annotated[
        list[str], option("NAME=VALUE", "A claim of the tokens. * in a value: any characters but / and :. Repeatable.")
    ],
    name: Annotated[str | None, option("NAME", "Name of the job. Default: its claims.", parser=line)] = None,
) -> Result:
    """Trust a job of another system, such as CI, to push versions of a skill."""
    claims = dict(map(_claim, claim))
    target = find.skill(client, skill)
    created = client.create_trusted_job(target.id, name=name or " ".join(claim)[:200], issuer=issuer, claims=claims)
    hint = f"Let the job ask for a token with the audience {created.id}, then run `qd trusted-jobs exchange`."
    return Result(created, f"trusted job {created.id} may push versions of {target.name}", hint=hint)


@command(app)
def delete(client: Client, job: TrustedJobId, yes: Yes = False) -> None:
    """Trust a job no longer. Its keys end at once."""
    found_id = find.trusted_job_id(client, job)
    confirm(f"Trust {job} no longer?", yes=yes)
    client.delete_trusted_job(found_id)
    say(f"deleted {job}")


@app.command()
def exchange(
    job: Annotated[str, argument("JOB", "ID of the trusted job.")],
    url: Annotated[str | None, option("URL", f"Address of the server. Default: {connection.URL}.", parser=line)] = None,
    allow_http: Annotated[
        bool, flag("--allow-http", "Allow sending the token unencrypted to another machine.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Exchange the token on stdin for a key of some minutes, and print it. For jobs."""
    address = url or os.environ.get(connection.URL) or connection.LOCAL_URL
    token = "" if sys.stdin.isatty() else sys.stdin.read().strip()
    if not token:
        raise CliError("No token given. Pipe the token of the job in.")
    with client_for(ConnectionInfo(address, None, None, connection.DEFAULT_PROFILE, allow_http)) as client:
        made = client.exchange_job_token(trusted_job_id=uuid(job), token=token)
    Result(made, made.secret).print(as_json=as_json)


def _claim(given: str) -> tuple[str, str]:
    name, separator, value = given.partition("=")
    if not (name and separator and value):
        raise CliError(f"{given!r} is not of the form NAME=VALUE.")
    return name, value


def _row(one: TrustedJobBody) -> list[object]:
    claims = " ".join(f"{name}={value}" for name, value in one.claims.items())
    used = one.last_used_at or "never"
    return [one.id, cell(one.name), one.skill_id, cell(one.issuer), cell(claims), used, one.created_by]

"""`qd agents`."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from quarterdeck.cli import find, versioned
from quarterdeck.cli.agent_folder import TEMPLATES, configuration, read_agent_folder
from quarterdeck.cli.commands import command
from quarterdeck.cli.connection import open_client
from quarterdeck.cli.options import AgentId, AsJson, FromDay, Limit, Profile, ToDay, argument, file_name, flag, line
from quarterdeck.cli.output import (
    Page,
    Result,
    cell,
    cost_text,
    created_text,
    json_text,
    note,
    print_diff,
    print_table,
    say,
)
from quarterdeck.client import Client
from quarterdeck.client.models import (
    AgentBody,
    AgentConfiguration,
    AgentVersionBody,
    AgentVersionItem,
    AgentVersionStats,
    FieldDiff,
)

app = typer.Typer(rich_markup_mode=None)


@command(app, "list")
def list_(
    client: Client, archived: Annotated[bool, flag("--archived", "List archived agents.")] = False, limit: Limit = 50
) -> Page[AgentBody]:
    """List agents, newest first."""
    columns = ("ID", "NAME", ">LATEST", "IN USE", "MODEL", "CREATED")
    empty = "No archived agents." if archived else "No agents yet."
    return Page(client.iter_agents(archived=archived), limit, columns, _row, empty)


@app.command()
def init(folder: Annotated[str, argument("DIR", "Folder of the agent. Created if needed.", parser=file_name)]) -> None:
    """Create a folder with an agent.yaml and an instructions.md to start from."""
    versioned.write_templates(Path(folder), TEMPLATES)


@app.command()
def push(
    agent: AgentId,
    folder: Annotated[str, argument("DIR", "Folder of the agent.", parser=file_name)],
    create: Annotated[bool, flag("--create", "Create the agent if it does not exist.")] = False,
    force: Annotated[bool, flag("--force", "Push even if nothing has changed.")] = False,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Push a folder as the next version of an agent. It is checked first."""
    found = read_agent_folder(Path(folder))
    if found.is_template and not force:
        raise versioned.refused(f"{folder} is the unchanged template of `qd agents init`")
    with open_client(profile) as client:
        target = find.or_none(find.agent, client, agent) if create else find.agent(client, agent)
        fields = configuration(client, found)
        if target is not None and not force:
            _check_changed(client, target, fields)
        if target is None:
            given = msgspec.convert(msgspec.to_builtins(fields), AgentConfiguration)
            # Agent and version in one request, so that none is left without the other.
            target = client.create_agent(name=line(agent), version=given)
            pushed = client.get_agent_version(target.id, 1)
        else:
            pushed = client.push_agent_version(target.id, **fields)
    text = f"pushed {target.name} version {pushed.version}"
    Result(pushed, text, hint=versioned.pinned_hint(target, "agents")).print(as_json=as_json)


@command(app)
def show(client: Client, agent: AgentId, version: versioned.OptionalVersion = None) -> Result:
    """Show an agent and the content of a version. Default: the version that sessions use."""
    found = find.agent(client, agent)
    number = version or versioned.used_version(found)
    content = None if number is None else client.get_agent_version(found.id, number)
    facts = [
        ("agent", found.id),
        ("name", found.name),
        ("in use", versioned.used_text(found) or "no version yet"),
        ("created", created_text(found)),
        ("archived", found.archived_at),
        *([] if content is None else _content(content)),
    ]
    return Result({"agent": found, "version": content}, facts)


@command(app)
def versions(client: Client, agent: AgentId, limit: Limit = 50) -> Page[AgentVersionItem]:
    """List the versions of an agent, newest first."""
    target = find.agent(client, agent)

    def row(one: AgentVersionItem) -> list[object]:
        is_used = one.version == versioned.used_version(target)
        return [one.version, is_used, cell(one.model or "Default"), one.created_at, one.created_by]

    columns = (">VERSION", "IN USE", "MODEL", "PUSHED", "BY")
    return Page(client.iter_agent_versions(target.id), limit, columns, row, "No versions.")


@command(app)
def diff(client: Client, agent: AgentId, base: versioned.OldVersion, head: versioned.NewVersion) -> Result:
    """Show the fields that differ between two versions."""
    found = client.diff_agent_versions(find.agent(client, agent).id, base=base, head=head)
    return Result(found, lambda: _print_fields(found.fields))


@command(app)
def rollback(
    client: Client, agent: AgentId, version: versioned.OptionalVersion = None, latest: versioned.Latest = False
) -> Result:
    """Set the version that sessions use. It applies from their next run on, unless they pin one."""
    versioned.check_rollback(version, latest=latest)
    return versioned.rolled_back(client.change_agent(find.agent(client, agent).id, default_version=version))


@command(app)
def stats(client: Client, agent: AgentId, from_: FromDay = None, to: ToDay = None) -> Result:
    """Show runs, failures, cost and duration of each version."""
    found = client.get_agent_stats(find.agent(client, agent).id, from_=from_, to=to)
    columns = (">VERSION", ">RUNS", ">FAILED", ">TOKENS IN", ">OUT", ">COST", ">MEAN", ">P50", ">P95")
    return Result(found, lambda: print_table(columns, map(_stats_row, found.versions), empty="No runs."))


@command(app)
def archive(client: Client, agent: AgentId) -> None:
    """Archive an agent. It then accepts no versions and no new sessions; its sessions continue."""
    changed = client.change_agent(find.agent(client, agent, archived=False).id, archived=True)
    say(f"archived {changed.name}")


@command(app)
def unarchive(client: Client, agent: Annotated[str, argument("AGENT", "ID or name of the archived agent.")]) -> None:
    """Unarchive an agent."""
    changed = client.change_agent(find.agent(client, agent, archived=True).id, archived=False)
    say(f"unarchived {changed.name}")


def _check_changed(client: Client, target: AgentBody, fields: dict[str, Any]) -> None:
    if target.latest_version is None:
        return
    latest = client.get_agent_version(target.id, target.latest_version)
    if msgspec.to_builtins({name: getattr(latest, name) for name in fields}) == msgspec.to_builtins(fields):
        raise versioned.refused(f"no changes since version {target.latest_version} of {target.name}")


def _print_fields(fields: list[FieldDiff]) -> None:
    for each in fields:
        if each.diff is None:
            say(f"{each.field.value}: {_value(each.before)} → {_value(each.after)}")
        else:
            say(f"{each.field.value}:")
            print_diff(each.diff)
    if not fields:
        note("No differences.")


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json_text(value)


def _content(version: AgentVersionBody) -> list[tuple[str, str | None]]:
    """Of fields that are set. Those with a structure as JSON."""
    values: dict[str, Any] = msgspec.to_builtins(version)
    names = ("settings", "skills", "mcp_servers", "client_tools", "tool_policy", "limits", "output_schema")
    shown = {name: _without_nulls(values[name]) for name in names}
    return [
        ("version", str(version.version)),
        ("model", version.model or "Default"),
        ("fallback models", "\n".join(version.fallback_models)),
        ("sandbox", "on" if version.sandbox is not None else "off"),
        *((name.replace("_", " "), _value(value) if value else None) for name, value in shown.items()),
        ("instructions", version.instructions),
    ]


def _without_nulls(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    found = {name: _without_nulls(each) for name, each in value.items()}
    return {name: each for name, each in found.items() if each is not None and each != {}}


def _row(one: AgentBody) -> list[object]:
    model = one.model or ("" if one.latest_version is None else "Default")
    return [one.id, cell(one.name), one.latest_version, versioned.used_text(one), cell(model), one.created_at]


def _stats_row(one: AgentVersionStats) -> list[object]:
    seconds = (one.mean_seconds, one.p50_seconds, one.p95_seconds)
    durations = ["" if each is None else f"{each:.1f} s" for each in seconds]
    counts = (one.version, one.runs, one.failures, one.input_tokens, one.output_tokens)
    return [*counts, cost_text(one.cost_usd), *durations]

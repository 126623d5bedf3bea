"""`qd agents`."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from quarterdeck.cli import find
from quarterdeck.cli.agent_folder import (
    AGENT_FILE,
    AGENT_YAML,
    INSTRUCTIONS,
    INSTRUCTIONS_FILE,
    configuration,
    read_agent_folder,
)
from quarterdeck.cli.connection import open_client
from quarterdeck.cli.errors import CliError
from quarterdeck.cli.options import (
    AgentId,
    AsJson,
    FromDay,
    Latest,
    Limit,
    NewVersion,
    OldVersion,
    Profile,
    ToDay,
    VersionArgument,
    argument,
    file_name,
    flag,
    line,
)
from quarterdeck.cli.output import (
    Column,
    cell,
    cost_text,
    created_text,
    note,
    print_diff,
    print_facts,
    print_json,
    print_list,
    print_result,
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

app = typer.Typer(rich_markup_mode=None, help="Create, push, compare and roll back agents.")


@app.command("list")
def list_(
    archived: Annotated[bool, flag("--archived", "List archived agents.")] = False,
    limit: Limit = 50,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """List agents, newest first."""
    with open_client(profile) as client:
        print_list(
            client.iter_agents(archived=archived),
            ("ID", "NAME", Column("LATEST", right=True), "IN USE", "MODEL", "CREATED"),
            _row,
            "No archived agents." if archived else "No agents yet.",
            limit,
            as_json=as_json,
        )


@app.command()
def init(folder: Annotated[str, argument("DIR", "Folder of the agent. Created if needed.", parser=file_name)]) -> None:
    """Create a folder with an agent.yaml and an instructions.md to start from."""
    path = Path(folder)
    files = {path / AGENT_FILE: AGENT_YAML, path / INSTRUCTIONS_FILE: INSTRUCTIONS}
    try:
        path.mkdir(parents=True, exist_ok=True)
        for file in files:
            if file.exists():
                raise CliError(f"{file}: already exists")
        for file, content in files.items():
            file.write_text(content, "utf-8")
    except FileExistsError:
        raise CliError(f"{path}: not a folder") from None
    except OSError as error:
        raise CliError(f"{path}: {error.strerror}") from None
    say("\n".join(f"wrote {file}" for file in files))


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
        raise _refused(f"{folder} is the unchanged template of `qd agents init`")
    with open_client(profile) as client:
        target = find.agent_or_none(client, agent) if create else find.agent(client, agent)
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
    print_result(pushed, f"pushed {target.name} version {pushed.version}", as_json=as_json)
    if target.default_version is not None:
        note(f"Sessions still use version {target.default_version}. See `qd agents rollback --latest`.")


@app.command()
def show(agent: AgentId, version: VersionArgument = None, profile: Profile = None, as_json: AsJson = False) -> None:
    """Show an agent and the content of a version. Default: the version that sessions use."""
    with open_client(profile) as client:
        found = find.agent(client, agent)
        number = version or found.default_version or found.latest_version
        content = None if number is None else client.get_agent_version(found.id, number)
    if as_json:
        print_json({"agent": found, "version": content})
        return
    print_facts(
        [
            ("agent", found.id),
            ("name", found.name),
            ("in use", _used(found) or "no version yet"),
            ("created", created_text(found)),
            ("archived", found.archived_at),
            *([] if content is None else _content(content)),
        ]
    )


@app.command()
def versions(agent: AgentId, limit: Limit = 50, profile: Profile = None, as_json: AsJson = False) -> None:
    """List the versions of an agent, newest first."""
    with open_client(profile) as client:
        target = find.agent(client, agent)
        used = target.default_version or target.latest_version
        print_list(
            client.iter_agent_versions(target.id),
            (Column("VERSION", right=True), "IN USE", "MODEL", "PUSHED", "BY"),
            lambda version: _version_row(version, used),
            "No versions.",
            limit,
            as_json=as_json,
        )


@app.command()
def diff(agent: AgentId, base: OldVersion, head: NewVersion, profile: Profile = None, as_json: AsJson = False) -> None:
    """Show the fields that differ between two versions."""
    with open_client(profile) as client:
        found = client.diff_agent_versions(find.agent(client, agent).id, base=base, head=head)
    if as_json:
        print_json(found)
        return
    for field in found.fields:
        _print_field(field)
    if not found.fields:
        note("No differences.")


@app.command()
def rollback(
    agent: AgentId,
    version: VersionArgument = None,
    latest: Latest = False,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """Set the version that sessions use. It applies from their next run on, unless they pin one."""
    if (version is None) is not latest:
        raise CliError("Use either VERSION or --latest")
    with open_client(profile) as client:
        changed = client.change_agent(find.agent(client, agent).id, default_version=version)
    if as_json:
        print_json(changed)
    else:
        used = f"the latest version (now {changed.latest_version})" if version is None else f"version {version}"
        say(f"{changed.name}: sessions use {used}")


@app.command()
def stats(
    agent: AgentId, from_: FromDay = None, to: ToDay = None, profile: Profile = None, as_json: AsJson = False
) -> None:
    """Show runs, failures, cost and duration of each version."""
    with open_client(profile) as client:
        found = client.get_agent_stats(find.agent(client, agent).id, from_=from_, to=to)
    if as_json:
        print_json(found)
        return
    columns = ("VERSION", "RUNS", "FAILED", "TOKENS IN", "OUT", "COST", "MEAN", "P50", "P95")
    print_table([Column(each, right=True) for each in columns], map(_stats_row, found.versions), empty="No runs.")


@app.command()
def archive(agent: AgentId, profile: Profile = None) -> None:
    """Archive an agent. It then accepts no versions and no new sessions; its sessions continue."""
    with open_client(profile) as client:
        found = find.agent(client, agent, archived=False)
        client.change_agent(found.id, archived=True)
    say(f"archived {found.name}")


@app.command()
def unarchive(
    agent: Annotated[str, argument("AGENT", "ID or name of the archived agent.")], profile: Profile = None
) -> None:
    """Unarchive an agent."""
    with open_client(profile) as client:
        found = find.agent(client, agent, archived=True)
        client.change_agent(found.id, archived=False)
    say(f"unarchived {found.name}")


def _check_changed(client: Client, target: AgentBody, fields: dict[str, Any]) -> None:
    if target.latest_version is None:
        return
    latest = client.get_agent_version(target.id, target.latest_version)
    if msgspec.to_builtins({name: getattr(latest, name) for name in fields}) == msgspec.to_builtins(fields):
        raise _refused(f"no changes since version {target.latest_version} of {target.name}")


def _refused(reason: str) -> CliError:
    return CliError(f"{reason}. Use --force to push anyway.")


def _print_field(field: FieldDiff) -> None:
    if field.diff is None:
        say(f"{field.field.value}: {_value(field.before)} → {_value(field.after)}")
    else:
        say(f"{field.field.value}:")
        print_diff(field.diff)


def _value(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _content(version: AgentVersionBody) -> list[tuple[str, str | None]]:
    """Of fields that are set. Those with a structure as JSON."""
    values: dict[str, Any] = msgspec.to_builtins(version)
    names = ("settings", "skills", "mcp_servers", "client_tools", "tool_policy", "limits", "output_schema")
    shown = {name: _without_nulls(values[name]) for name in names}
    return [
        ("version", str(version.version)),
        ("model", version.model or "Default"),
        ("sandbox", "on" if version.sandbox is not None else "off"),
        *((name.replace("_", " "), _value(value) if value else None) for name, value in shown.items()),
        ("instructions", version.instructions),
    ]


def _without_nulls(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    found = {name: _without_nulls(each) for name, each in value.items()}
    return {name: each for name, each in found.items() if each is not None and each != {}}


def _row(agent: AgentBody) -> list[object]:
    latest = "" if agent.latest_version is None else str(agent.latest_version)
    model = agent.model or ("Default" if latest else "")
    return [agent.id, cell(agent.name), latest, _used(agent), cell(model), agent.created_at]


def _used(agent: AgentBody) -> str:
    if agent.latest_version is None:
        return ""
    return "Latest (auto-update)" if agent.default_version is None else f"Pinned to version {agent.default_version}"


def _version_row(version: AgentVersionItem, used: int | None) -> list[object]:
    return [
        version.version,
        version.version == used,
        cell(version.model or "Default"),
        version.created_at,
        version.created_by,
    ]


def _stats_row(stats: AgentVersionStats) -> list[object]:
    counts = (stats.version, stats.runs, stats.failures, stats.input_tokens, stats.output_tokens)
    seconds = (stats.mean_seconds, stats.p50_seconds, stats.p95_seconds)
    durations = ["" if each is None else f"{each:.1f} s" for each in seconds]
    return [*(str(count) for count in counts), cost_text(stats.cost_usd), *durations]

"""`qd agents`, `qd mcp` and `qd credentials` against a server."""

from pathlib import Path

from tests.cli.people import nearby
from tests.world import CLOSED_MCP_URL as URL
from tests.world import Server, World, bundle


async def test_an_agent_from_a_folder_to_its_sessions(tmp_path: Path, server: Server, world: World) -> None:
    person = nearby(tmp_path, server, world)
    assert person.done("agents", "init", "planner") == "wrote planner/agent.yaml\nwrote planner/instructions.md\n"
    assert person.refused("agents", "init", "planner") == (2, "planner/agent.yaml: already exists")
    code, told = person.refused("agents", "push", "planner", "planner", "--create")
    assert (code, "unchanged template" in told) == (2, True)
    skill_id = await world.new_skill("dates")
    assert (await world.push(skill_id, bundle("dates"))).status_code == 201
    tracker = person.json("mcp", "add", "tracker", "--url", URL)
    folder = tmp_path / "planner"
    (folder / "instructions.md").write_text("You plan releases.\n")
    (folder / "agent.yaml").write_text(
        "model: demo\nskills: [dates]\nmcp_servers: [tracker]\nlimits: {run: {max_tokens: 9}}\n"
    )
    assert person.refused("agents", "push", "planner", "planner")[0] == 4
    first = person.json("agents", "push", "planner", "planner", "--create")
    assert (first["version"], first["instructions"]) == (1, "You plan releases.")
    assert first["skills"] == [{"skill_id": skill_id, "version": None}]
    assert (first["mcp_servers"], first["limits"]["run"]["max_tokens"]) == ([tracker["id"]], 9)
    code, told = person.refused("agents", "push", "planner", "planner")
    assert (code, told) == (2, "no changes since version 1 of planner. Use --force to push anyway.")
    assert person.done("agents", "push", "planner", "planner", "--force") == "pushed planner version 2\n"

    (folder / "instructions.md").write_text("You plan releases in May.\n")
    (folder / "tools.json").write_text('[{"name": "ship", "description": "", "parameters": {"type": "object"}}]')
    with (folder / "agent.yaml").open("a") as file:
        file.write("client_tools: tools.json\noutput_schema: {type: object}\n")
    assert person.done("agents", "push", "planner", "planner") == "pushed planner version 3\n"
    changes = person.done("agents", "diff", "planner", "2", "3")
    assert "+You plan releases in May." in changes
    assert '+    "name": "ship",' in changes
    assert person.qd("agents", "diff", "planner", "1", "2").stderr == "No differences.\n"
    assert person.done("agents", "rollback", "planner", "1") == "planner: sessions use version 1\n"

    session = person.done("sessions", "create", "--agent", "planner").strip()
    shown = person.done("sessions", "show", session)
    assert "planner (now version 1)" in shown
    assert "You plan releases." in shown
    own = person.json("sessions", "create", "--agent", "planner@3", "--instructions", "Mine.")
    assert (own["agent"]["version"], own["overrides"], own["model"]) == (3, ["instructions"], "demo")
    person.done("sessions", "edit", own["id"], "--title", "Mine", "--agent", "planner", "--no-mcp-servers")
    followed = person.json("sessions", "edit", own["id"], "--inherit", "instructions")
    assert (followed["agent"]["current_version"], followed["overrides"]) == (1, ["mcp_servers"])
    assert (followed["instructions"], followed["mcp_servers"]) == ("You plan releases.", [])
    code, told = person.refused("sessions", "edit", session, "--inherit", "title")
    assert (code, "'title' is not one of model, fallback_models, settings, " in told) == (2, True)
    own = person.json("sessions", "edit", own["id"], "--no-agent", "--mcp-server", "tracker")
    assert (own["agent"], own["overrides"], own["mcp_servers"]) == (None, [], [tracker["id"]])
    assert "tracker" in person.done("sessions", "show", own["id"])
    alone = person.json("sessions", "create", "--mcp-server", "tracker")
    assert alone["mcp_servers"] == [tracker["id"]]
    assert person.done("agents", "rollback", "planner", "--latest").endswith("the latest version (now 3)\n")
    shown = person.done("agents", "show", "planner")
    assert "You plan releases in May." in shown
    assert "Latest (auto-update)" in person.done("agents", "list")
    assert [line.split()[:2] for line in person.done("agents", "versions", "planner").splitlines()[1:2]] == [
        ["3", "yes"]
    ]
    assert person.json("agents", "stats", "planner")["versions"] == []
    assert person.done("agents", "archive", "planner") == "archived planner\n"
    code, told = person.refused("sessions", "create", "--agent", "planner")
    assert (code, "archived" in told) == (2, True)
    assert person.done("agents", "unarchive", "planner") == "unarchived planner\n"


async def test_mistakes_in_a_folder_are_found_before_a_request(tmp_path: Path, server: Server, world: World) -> None:
    person = nearby(tmp_path, server, world, key="qd_live_wrong")
    folder = tmp_path / "planner"
    assert person.refused("agents", "push", "planner", "planner") == (2, "planner: no such folder")
    folder.mkdir()
    code, told = person.refused("agents", "push", "planner", "planner")
    assert (code, told.startswith("planner/agent.yaml: No such file")) == (2, True)
    assert "1 more: planner/instructions.md: No such file" in told
    (folder / "instructions.md").touch()
    for text, fault in (
        ("modle: demo", "planner/agent.yaml: unknown field modle. Did you mean model?"),
        ("model: claude", "planner/agent.yaml: model 'claude' is not provider:name or demo"),
        ("limits: {run: {max_token: 5}}", "unknown field `max_token` - at `$.limits.run`"),
        ("settings: {temperatur: 1}", "unknown field `temperatur` - at `$.settings`"),
        ("tool_policy: {bash: maybe}", "planner/agent.yaml: Invalid enum value 'maybe'"),
        ("client_tools: tools.json", "planner/tools.json: No such file or directory"),
        ("a: [", "planner/agent.yaml:1: "),
        ("- a", "planner/agent.yaml: must be a mapping of fields"),
    ):
        (folder / "agent.yaml").write_text(text)
        code, told = person.refused("agents", "push", "planner", "planner")
        assert (code, fault in told) == (2, True), (text, told)


async def test_mcp_servers_and_credentials(tmp_path: Path, server: Server, world: World) -> None:
    person = nearby(tmp_path, server, world)
    assert person.done("credentials", "add", "tracker-key", given="s3cret-value\n").startswith("added tracker-key ")
    code, told = person.refused("credentials", "add", "empty", given="\n")
    assert (code, told.startswith("No secret given.")) == (2, True)
    (tmp_path / "secret").write_text("another-value")
    person.done("credentials", "add", "header-key", "--kind", "header", "--header", "X-Key", "--secret-file", "secret")
    listed = person.qd("credentials", "list")
    assert "Authorization: Bearer" in listed.stdout
    assert "X-Key" in listed.stdout
    assert "value" not in listed.stdout + person.done("credentials", "list", "--json")
    assert person.done("credentials", "rotate", "tracker-key", given="third-value") == "rotated tracker-key\n"

    assert person.refused("mcp", "add", "tracker")[0] == 2
    assert person.done("mcp", "add", "tracker", "--url", URL, "--credential", "tracker-key").startswith(
        "added tracker "
    )
    assert person.refused("mcp", "add", "tracker", "--url", URL)[0] == 5
    checked = person.qd("mcp", "check", "tracker")
    assert (checked.returncode, checked.stdout.startswith("failed: ")) == (1, True)
    shown = person.qd("mcp", "show", "tracker")
    assert URL in shown.stdout
    assert "failed: " in shown.stdout
    assert shown.stderr == "No known tools.\n"
    assert "failed: " in person.done("mcp", "list")
    assert person.refused("credentials", "remove", "tracker-key", "--yes")[0] == 5
    assert person.done("mcp", "change", "tracker", "--name", "issues", "--no-credential") == "changed issues\n"
    assert person.json("mcp", "show", "issues")["credential_id"] is None
    assert person.done("credentials", "remove", "tracker-key", "--yes") == "removed tracker-key\n"
    assert person.done("mcp", "remove", "issues", "--yes") == "removed issues\n"
    assert person.done("mcp", "list", "--json") == '{"items":[],"more":false}\n'


async def test_a_secret_is_not_shown_while_it_is_typed(tmp_path: Path, server: Server, world: World) -> None:
    person = nearby(tmp_path, server, world)
    code, shown = person.at_terminal("credentials", "add", "typed", answers={"Secret: ": "s3cret-value"})
    assert (code, "added typed" in shown, "s3cret" in shown) == (0, True, False)

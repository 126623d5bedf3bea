"""`qd sessions`, `qd send` and `qd runs`, with a worker where an agent has to answer."""

import json
import re
import signal
import subprocess
from pathlib import Path

import httpx

from tests.cli.command import QD
from tests.cli.people import WAIT_SECONDS, nearby
from tests.contract.test_session_events import add_events
from tests.workers import working
from tests.world import Server, World, bundle, serving


async def test_create_show_list_archive_delete(tmp_path: Path, server: Server, world: World) -> None:
    person = nearby(tmp_path, server, world)
    skill_id = await world.new_skill()
    assert (await world.push(skill_id, bundle())).status_code == 201
    (tmp_path / "words").write_text("Be brief.\n")
    options = ("--title", "Plan", "--model", "demo", "--instructions-file", "words", "--skill", f"{skill_id}@1")
    session_id = person.done("sessions", "create", *options, "--reasoning-effort", "low").strip()
    session = person.json("sessions", "show", session_id)["session"]
    assert session["instructions"] == "Be brief.\n"
    assert session["settings"]["reasoning_effort"] == "low"
    assert session["skills"] == [{"skill_id": skill_id, "version": 1}]
    shown = person.qd("sessions", "show", session_id)
    assert "Plan" in shown.stdout
    assert "No runs yet." in shown.stderr
    assert session_id in person.done("sessions", "list")
    edit = ("sessions", "edit", session_id)
    person.done(*edit, "--default-model", "--temperature", "0.1", "--max-output-tokens", "7")
    changed = person.json(*edit, "--default-settings", "--temperature", "0.5")
    assert changed["settings"] == {"temperature": 0.5, "max_output_tokens": None, "reasoning_effort": None}
    shown = person.qd("sessions", "show", session_id)
    for part in ("Default (demo)", "temperature: 0.5", "0 in, 0 out"):
        assert part in shown.stdout
    assert session_id in person.done("sessions", "list", "--search", "PLA")
    nothing = person.qd("sessions", "list", "--search", "plan", "--in", "conversations")
    assert (nothing.stdout, nothing.stderr) == ("", "No sessions found.\n")
    await add_events(world, session_id, 1, "barnacle")
    assert session_id in person.done("sessions", "list", "--search", "barnacle", "--in", "conversations")
    assert person.refused("sessions", "list", "--search", "plan", "--in", "texts")[0] == 2
    models = person.qd("models")
    assert [line.split() for line in models.stdout.splitlines()] == [
        ["MODEL", "PROVIDER", "DEFAULT"],
        ["demo", "demo", "yes"],
    ]
    assert models.stderr == "Other models can be used as openai:NAME or openai-chat:NAME.\n"
    assert person.json("models")["default"] == "demo"

    person.done("sessions", "archive", session_id)
    assert session_id in person.done("sessions", "list", "--archived")
    code, _ = person.refused("send", session_id, "hello")
    assert code == 5
    person.done("sessions", "unarchive", session_id)
    assert person.done("send", session_id, "hello").startswith("new_run ")
    assert person.refused("sessions", "delete", session_id)[0] == 2
    person.done("sessions", "delete", session_id, "--yes")
    assert person.refused("sessions", "show", session_id)[0] == 4
    assert person.qd("sessions", "list").stderr == "No sessions yet.\n"


async def test_fallback_models(tmp_path: Path, server: Server, world: World) -> None:
    person = nearby(tmp_path, server, world)
    given = ("--fallback-model", "demo", "--fallback-model", "openai:gpt-5")
    created = person.json("sessions", "create", *given)
    assert created["fallback_models"] == ["demo", "openai:gpt-5"]
    assert re.search(r"^fallback models +demo$", person.done("sessions", "show", created["id"]), re.MULTILINE)
    edit = ("sessions", "edit", created["id"])
    assert person.refused(*edit, *given, "--no-fallback-models")[0] == 2
    assert person.json(*edit, "--no-fallback-models")["fallback_models"] == []


async def test_output_schema_is_json_or_a_file(tmp_path: Path, server: Server, world: World) -> None:
    person = nearby(tmp_path, server, world)
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    (tmp_path / "answer.json").write_text(json.dumps(schema))
    (tmp_path / "list.json").write_text("[]")
    created = person.json("sessions", "create", "--output-schema", "answer.json")
    assert created["output_schema"] == schema
    edit = ("sessions", "edit", created["id"])
    assert person.json(*edit, "--output-schema", '{"type": "object"}')["output_schema"] == {"type": "object"}
    assert re.search(
        r'^output schema +\{"type":"object"\}$', person.done("sessions", "show", created["id"]), re.MULTILINE
    )
    assert person.json(*edit, "--title", "Other")["output_schema"] == {"type": "object"}
    assert person.json(*edit, "--no-output-schema")["output_schema"] is None
    for wrong in ("nowhere.json", "list.json", "{"):
        assert person.refused("sessions", "create", "--output-schema", wrong)[0] == 2
    assert person.refused(*edit, "--output-schema", "{}", "--no-output-schema")[0] == 2


async def test_send_prints_outcome_and_run(tmp_path: Path, server: Server, world: World) -> None:
    """No worker here: the run stays queued, so the second input steers it."""
    person = nearby(tmp_path, server, world)
    session_id = await world.new_session()
    outcome, run_id = person.done("send", session_id, "one").split()
    assert outcome == "new_run"
    assert person.done("send", session_id, "-", given="two\nlines") == f"steered {run_id}\n"
    assert "queued" in person.done("runs", "show", run_id)
    accepted = (await world.get(f"/v1/sessions/{session_id}/events")).json()["items"]
    assert [entry["data"]["text"] for entry in accepted] == ["one", "two\nlines"]
    input_id = accepted[1]["data"]["input_id"]
    assert person.done("sessions", "discard", session_id, input_id) == f"discarded {input_id}\n"
    assert person.refused("sessions", "discard", session_id, input_id)[0] == 5
    cancelled = person.qd("runs", "cancel", run_id)
    assert cancelled.stdout == f"cancelled {run_id}\n"
    assert "Discarded 1 input" in cancelled.stderr
    assert person.json("runs", "show", run_id)["state"] == "cancelled"
    state, retried = person.done("runs", "retry", run_id).split()
    assert (state, person.json("runs", "show", retried)["inputs_accepted"]) == ("queued", 1)
    _, pending = person.done("send", session_id, "three", "--delivery", "queue").split()
    assert person.json("runs", "show", pending)["state"] == "pending"
    _, interrupting = person.done("send", session_id, "four", "--delivery", "interrupt").split()
    states = [person.json("runs", "show", one)["state"] for one in (retried, pending, interrupting)]
    assert states == ["cancelled", "pending", "queued"]
    assert person.refused("runs", "retry", run_id)[0] == 5
    assert person.refused("send", session_id, "five", "--delivery", "later")[0] == 2

    exported = person.done("sessions", "export", session_id).splitlines()
    assert [json.loads(line) for line in exported[:2]] == accepted
    assert person.done("sessions", "export", session_id, "--markdown", "-o", "log.md").startswith("wrote log.md (")
    assert "two\nlines" in (tmp_path / "log.md").read_text("utf-8")
    person.done("sessions", "rename", session_id, "Plan")
    fork_id = person.done("sessions", "fork", session_id, "--before", str(accepted[1]["id"])).strip()
    shown = person.qd("sessions", "show", fork_id)
    assert session_id in shown.stdout
    assert "Plan (fork)" in shown.stdout
    assert "No runs since the fork." in shown.stderr


async def test_send_a_batch(tmp_path: Path, server: Server, world: World) -> None:
    person = nearby(tmp_path, server, world)
    session_id = await world.new_session()
    _, run_id = person.done("send", session_id, "Sort them.", "--batch").split()
    assert re.search(r"priority +batch", person.done("runs", "show", run_id))
    await world.execute("UPDATE runs SET waits_for_batch_since = now() WHERE id = %s", run_id)
    for shown in (person.done("runs", "show", run_id), person.done("sessions", "show", session_id)):
        assert "the answer of a batch" in shown


async def test_send_waits_for_the_answer(tmp_path: Path, database_url: str) -> None:
    with serving(database_url, tmp_path) as server, working(database_url, tmp_path):
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
            world = await World.create(database_url, http)
            person = nearby(tmp_path, server, world)
            session_id = await world.new_session()
            answered = person.qd("send", session_id, "Plan our release.", "--wait")
            assert answered.returncode == 0, answered.stderr
            assert "> Plan our release." in answered.stdout
            assert answered.stderr.startswith("new_run ")
            failed = person.qd("send", session_id, "demo: fail", "--wait", "--json")
            assert failed.returncode == 1
            assert json.loads(failed.stdout)["run"]["state"] == "failed"
            assert "told to fail" in failed.stderr
            half = person.qd("send", session_id, "demo: cut", "--wait", "--json")
            assert half.returncode == 0, half.stderr
            assert json.loads(half.stdout)["cut_off"] == "length"
            assert "Cut off: the answer reached the limit of output tokens." in half.stderr
            assert "> The answer was cut off." in person.qd("sessions", "export", session_id, "--markdown").stdout
            reasoned = person.qd("send", session_id, "demo: reason\ndemo: steps 0", "--wait", "--json")
            assert "- Example Domain https://example.com/" in reasoned.stderr
            log = map(json.loads, person.qd("sessions", "export", session_id).stdout.splitlines())
            [thought] = [one["data"]["reasoning"] for one in log if "reasoning" in one["data"]]
            assert thought.startswith("I was asked")
            # Earlier answers are not printed.
            again = person.json("send", session_id, "Once more.", "--wait")
            assert not any("Plan our release" in message for message in again["messages"])


async def test_wrong_values(tmp_path: Path, server: Server, world: World) -> None:
    person = nearby(tmp_path, server, world)
    assert person.refused("sessions", "show", "x")[0] == 4
    assert person.refused("sessions", "create", "--title", "two\nlines")[0] == 2
    assert person.refused("sessions", "create", "--instructions-file", "nowhere")[0] == 2
    assert person.refused("sessions", "create", "--instructions", "a", "--instructions-file", "b")[0] == 2
    assert person.refused("sessions", "create", "--skill", "nothing-like-it")[0] == 4
    assert person.refused("send", str(world.workspace_id), "hello")[0] == 4
    assert person.refused("runs", "show", str(world.workspace_id))[0] == 4


async def test_a_wait_can_be_interrupted(tmp_path: Path, server: Server, world: World) -> None:
    """No worker here, so it would wait for ever."""
    person = nearby(tmp_path, server, world)
    session_id = await world.new_session()
    with subprocess.Popen(
        [*QD, "send", session_id, "hello", "--wait"],
        env=person.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Shells let background processes ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline().startswith("new_run ")
            process.send_signal(signal.SIGINT)
            assert process.wait(WAIT_SECONDS) == 130
            assert "Traceback" not in process.stderr.read()
        finally:
            process.kill()

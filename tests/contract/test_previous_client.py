"""The Python client of the previous release works against this server. It is taken from the history of the project."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from quarterdeck.core.actors import Permission
from tests.previous_release import RELEASE, sources
from tests.world import Server, World

pytestmark = pytest.mark.long

# Its client cannot read others (decision 0070). Keys that were created before an upgrade have no others.
KNOWN_PERMISSIONS = (
    Permission.WORKSPACE_READ,
    Permission.KEY_MANAGE,
    Permission.SESSION_MANAGE,
    Permission.SKILL_MANAGE,
)

_SCRIPT = """
import os
from pathlib import Path
from quarterdeck.client import Client, Conflict, NotFound
import quarterdeck.client

assert Path(quarterdeck.client.__file__).is_relative_to(os.environ["PREVIOUS"]), quarterdeck.client.__file__
with Client(os.environ["QD_URL"], os.environ["QD_KEY"]) as client:
    caller = client.whoami()
    session = client.create_session(title="First session")
    started = client.submit_input(session.id, text="Plan our release.", idempotency_key="first")
    assert started.outcome == "new_run"
    assert client.submit_input(session.id, text="Plan our release.", idempotency_key="first") == started
    assert client.submit_input(session.id, text="One page.").outcome == "steered"
    try:
        client.submit_input(session.id, text="Something else.", idempotency_key="first")
    except Conflict:
        pass
    else:
        raise AssertionError("a key that was used for another request was accepted")
    events = client.list_session_events(session.id)
    assert [event.type for event in events.items] == ["input.accepted", "input.accepted"]
    assert client.get_run(started.run_id).inputs_accepted == 2
    assert client.cancel_run(started.run_id).state == "cancelled"
    token = client.create_session_token(session.id)
    with Client(os.environ["QD_URL"], token.token) as guest:
        assert guest.whoami().session_id == session.id
    changed = client.change_session(session.id, title="Renamed", if_match=session.revision)
    assert changed.title == "Renamed"

    key = client.create_api_key(label="another", permissions=["workspace.read"])
    assert key.id in [each.id for each in client.list_api_keys(workspace_id=caller.workspace_id).items]
    client.rotate_api_key(key.id)
    client.revoke_api_key(key.id)

    skill = client.create_skill(name="greeting")
    folder = Path(os.environ["BUNDLE"])
    pushed = client.push_skill(skill.id, folder)
    assert pushed.version == 1
    assert client.get_skill_version(skill.id, 1).bundle_bytes == pushed.bundle_bytes
    webhook = client.create_webhook(url="https://example.com/hook", events=["run.succeeded"])
    client.delete_webhook(webhook.id)
    assert client.list_audit_events().items
    client.get_activity()
    client.delete_session(session.id)
    try:
        client.get_session(session.id)
    except NotFound:
        print("done")
"""


@pytest.fixture
def previous(tmp_path: Path) -> Path:
    return sources(RELEASE, tmp_path / "previous")


async def test_the_previous_client_works(server: Server, world: World, previous: Path, tmp_path: Path) -> None:
    known = [str(permission) for permission in KNOWN_PERMISSIONS]
    await world.execute("UPDATE api_keys SET permissions = %s WHERE workspace_id = %s", known, world.workspace_id)
    bundle = tmp_path / "greeting"
    bundle.mkdir()
    (bundle / "SKILL.md").write_text("---\nname: greeting\ndescription: Says hello.\n---\nSay ahoy.\n")
    environment = os.environ | {
        "PYTHONPATH": str(previous),
        "PREVIOUS": str(previous),
        "BUNDLE": str(bundle),
        "QD_URL": server.url,
        "QD_KEY": world.key,
    }
    ran = subprocess.run(
        [sys.executable, "-c", _SCRIPT], env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert ran.stdout == "done\n", ran.stderr

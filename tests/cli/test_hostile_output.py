"""No text that others wrote reaches the terminal as an escape sequence. Runs every command of `qd` with a server of
which every text is hostile."""

import json
import re
from contextlib import chdir
from pathlib import Path
from unittest.mock import patch

import pytest

from quarterdeck.cli.main import SERVER_COMMANDS, LazyCommand, root
from quarterdeck.client import Client
from quarterdeck.client.models import DeviceCodeState, RedeemedDeviceCodeBody
from tests.cli.command import qd_here_in
from tests.cli.hostile_server import HOSTILE, ID, hostile_server
from tests.cli.people import Nearby

URL = "http://127.0.0.1:1"

# Arguments of each command. "--json" is added to those that have it.
COMMANDS: dict[str, tuple[str, ...]] = {
    "whoami": (),
    "watch": (str(ID), "--until-idle"),
    "send": (str(ID), "text"),
    "sessions list": (),
    "sessions create": (),
    "sessions show": (str(ID),),
    "sessions rename": (str(ID), "title"),
    "sessions edit": (str(ID), "--title", "title"),
    "sessions archive": (str(ID),),
    "sessions unarchive": (str(ID),),
    "sessions delete": (str(ID),),
    "sessions fork": (str(ID),),
    "sessions export": (str(ID),),
    "sessions discard": (str(ID), str(ID)),
    "runs list": (str(ID),),
    "runs show": (str(ID),),
    "runs cancel": (str(ID),),
    "runs retry": (str(ID),),
    "actions list": (),
    "actions show": (str(ID),),
    "actions resolve": (str(ID), "--deny"),
    "usage": (),
    "retention": (),
    "models": (),
    "files list": (str(ID),),
    "files get": (str(ID), "path", "-o", "-"),
    "files put": ("SKILL.md",),
    "files delete": (str(ID),),
    "skills list": (),
    "skills search": ("be",),
    "skills lint": (".",),
    "skills push": (str(ID), ".", "--force"),
    "skills versions": (str(ID),),
    "skills diff": (str(ID), "1", "2"),
    "skills download": (str(ID), "1", "-o", "-"),
    "skills rollback": (str(ID), "1"),
    "skills archive": (str(ID),),
    "skills unarchive": (str(ID),),
    "skills delete": (str(ID),),
    "agents list": (),
    "agents push": (str(ID), ".", "--force"),
    "agents show": (str(ID),),
    "agents versions": (str(ID),),
    "agents diff": (str(ID), "1", "2"),
    "agents rollback": (str(ID), "1"),
    "agents stats": (str(ID),),
    "agents archive": (str(ID),),
    "agents unarchive": (str(ID),),
    "mcp list": (),
    "mcp add": ("name", "--url", "https://example.com"),
    "mcp show": (str(ID),),
    "mcp change": (str(ID), "--name", "name"),
    "mcp remove": (str(ID),),
    "mcp check": (str(ID),),
    "credentials list": (),
    "credentials add": ("name", "--secret-file", "SKILL.md"),
    "credentials rotate": (str(ID), "--secret-file", "SKILL.md"),
    "credentials remove": (str(ID),),
    "keys list": (),
    "keys create": ("--label", "label", "--permission", "workspace.read"),
    "keys rotate": (str(ID),),
    "keys revoke": (str(ID),),
    "tokens list": (str(ID),),
    "tokens create": (str(ID),),
    "tokens revoke": (str(ID), str(ID)),
    "workspaces list": (),
    "members list": ("--all",),
    "members invite": ("ann@example.com",),
    "members set-role": (str(ID), "member"),
    "members remove": (str(ID),),
    "members leave": (),
    "invitations list": ("--all",),
    "invitations revoke": (str(ID),),
    "devices list": (),
    "profile": ("--name", "name"),
    "trusted-jobs list": (),
    "trusted-jobs create": (str(ID), "--issuer", "https://example.com", "--claim", "sub=x"),
    "trusted-jobs delete": (str(ID),),
    "webhooks list": (),
    "webhooks create": ("https://example.com", "--event", "run.succeeded"),
    "webhooks show": (str(ID),),
    "webhooks enable": (str(ID),),
    "webhooks disable": (str(ID),),
    "webhooks rotate": (str(ID),),
    "webhooks delete": (str(ID),),
    "webhooks test": (str(ID),),
    "webhooks deliveries": (str(ID),),
    "webhooks redeliver": (str(ID), str(ID)),
    "audit": (),
}
# `qd chat` has a test in a real terminal, and those for a saved login have one of their own. The others print only what
# their user has given.
OF_A_DEVICE = ("logout", "workspaces use", "devices end")
EXCHANGE = "trusted-jobs exchange"
OTHERS = {"chat", "login", *OF_A_DEVICE, "skills init", "agents init", EXCHANGE, *SERVER_COMMANDS}

# Colours that `qd` itself uses. HOSTILE has another.
_OWN = re.compile("\x1b\\[(?!45m)[0-9;]*m")
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def all_commands() -> dict[str, bool]:
    """Whether each has --json."""
    found = {}
    for name, command in root().commands.items():
        assert isinstance(command, LazyCommand)
        loaded = command.load()
        for inner, each in getattr(loaded, "commands", {"": loaded}).items():
            found[f"{name} {inner}".strip()] = any(param.name == "as_json" for param in each.params)
    return found


HAVE_JSON = all_commands()


def test_every_command_is_listed() -> None:
    assert {name for name in HAVE_JSON if name.split()[0] not in OTHERS} - OTHERS == set(COMMANDS)


@pytest.fixture
def person(tmp_path: Path) -> Nearby:
    """In the folder of a skill and an agent, whose files others wrote too."""
    (tmp_path / "SKILL.md").write_text(f"---\nname: name\ndescription: d\n---\n\n{HOSTILE}\n")
    (tmp_path / f"{HOSTILE}.pyc").write_text("")
    (tmp_path / "agent.yaml").write_text("model: demo\n")
    (tmp_path / "instructions.md").write_text(HOSTILE)
    return Nearby(tmp_path, {"QD_URL": URL, "QD_KEY": "qd_live_x"})


def shown(person: Nearby, *arguments: str) -> tuple[int, str]:
    """The exit code and what a terminal gets, with every question answered by yes."""
    with (
        patch("quarterdeck.cli.chat_session.ChatSession.has_active_run", return_value=False),
        chdir(person.home),
    ):
        done = qd_here_in(person.environ, *arguments, given="y\n", at_terminal=True)
    text = done.stdout + done.stderr
    assert text.strip()
    assert not _UNSAFE.search(_OWN.sub("", text)), text
    return done.returncode, text


@pytest.mark.parametrize("command", COMMANDS)
def test_no_escape_sequence_of_others_reaches_the_terminal(person: Nearby, command: str) -> None:
    given = (*command.split(), *COMMANDS[command])
    for options in [[], ["--json"]] if HAVE_JSON[command] else [[]]:
        with hostile_server():
            code, text = shown(person, *given, *options)
        # The name of a file in the folder is one of the errors that lint reports.
        assert code == (command == "skills lint"), text
    for status in (400, 503, 302):
        with hostile_server(status):
            shown(person, *given)


@pytest.fixture
def at_home(tmp_path: Path) -> Nearby:
    """With a device of the server, whose email address the server has told."""
    save_profile = {"profiles": {"default": {"url": URL, "key": "qdd_live_x", "email": HOSTILE}}}
    person = Nearby(tmp_path)
    person.profiles.parent.mkdir(parents=True)
    person.profiles.write_text(json.dumps(save_profile))
    person.profiles.chmod(0o600)
    return person


def test_the_key_of_a_job(person: Nearby) -> None:
    """It takes the token from a pipe."""
    for status in (200, 400, 503, 302):
        with hostile_server(status):
            done = qd_here_in(person.environ, *EXCHANGE.split(), str(ID), given="token")
        assert not _UNSAFE.search(_OWN.sub("", done.stdout + done.stderr)), status


@pytest.mark.parametrize("option", ["--no-browser", "--key"])
def test_login(tmp_path: Path, option: str) -> None:
    approved = RedeemedDeviceCodeBody(DeviceCodeState.APPROVED, "qdd_live_x", None)
    answers = [RedeemedDeviceCodeBody(DeviceCodeState.PENDING), approved]
    with hostile_server(), patch.object(Client, "redeem_device_code", side_effect=answers), chdir(tmp_path):
        done = qd_here_in(Nearby(tmp_path).environ, "login", "--url", URL, option, given="qd_live_x\n")
    assert done.returncode == 0, done.stderr
    text = done.stdout + done.stderr
    assert "fore" in text
    assert not _UNSAFE.search(_OWN.sub("", text)), text


@pytest.mark.parametrize("secret", [None, HOSTILE, "qd_live_x", f"qdd_{HOSTILE}"])
def test_login_with_a_credential_that_is_none(tmp_path: Path, secret: str | None) -> None:
    approved = RedeemedDeviceCodeBody(DeviceCodeState.APPROVED, secret, None)
    person = Nearby(tmp_path)
    with hostile_server(), patch.object(Client, "redeem_device_code", return_value=approved), chdir(tmp_path):
        done = qd_here_in(person.environ, "login", "--url", URL)
    assert done.returncode == 2
    assert not _UNSAFE.search(done.stderr)
    assert not person.profiles.exists()


@pytest.mark.parametrize("command", OF_A_DEVICE)
def test_commands_of_a_device(at_home: Nearby, command: str) -> None:
    given = [*command.split(), *([] if command == "logout" else [str(ID)])]
    saved = at_home.profiles.read_text()
    for status in (200, 400, 503, 302):
        at_home.profiles.write_text(saved)
        with hostile_server(status):
            shown(at_home, *given)

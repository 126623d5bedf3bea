"""Nothing of the host can be read, reached or changed from inside."""

import json
import os
import shlex
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from quarterdeck.sandbox import bubblewrap as bwrap_program
from tests.sandbox.accounts import ACCOUNTS, account, bubblewrap, run

_PROBE = Path(__file__).with_name("probe.py").read_text()
_CANARY = "canary-f2c1b7"


def _listen(stack: ExitStack, family: int, address: object) -> int:
    listener = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
    listener.bind(address)  # type: ignore[arg-type]
    listener.listen()
    name = listener.getsockname()
    return int(name[1]) if isinstance(name, tuple) else 0


@pytest.mark.parametrize("name", [*ACCOUNTS, "root_with_copies"])
def test_nothing_of_the_host_is_reachable(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUARTERDECK_MODEL_OPENAI_API_KEY", _CANARY)
    if name == "root_with_copies":
        # As if the Python environment were below /root.
        monkeypatch.setattr(bwrap_program, "_can_enter", lambda path: False)
    with account(name.removesuffix("_with_copies")) as worker, ExitStack() as stack:
        # Below a folder that commands can read, and readable by everyone: only the sandbox protects it.
        readable = worker.new_folder("readable")
        (readable / "reference.txt").write_text("reference")
        (readable / "reference.txt").chmod(0o666)
        data = worker.new_folder("readable/data")
        own, other, skill = (worker.new_folder(part) for part in ("own", "other", "skill"))
        for file in (data / "owner.password", other / "file", skill / "file"):
            file.write_text(_CANARY)
            file.chmod(0o666)
        target = {
            "canary": _CANARY,
            "marker": str(worker.folder),
            "readable": str(readable),
            "pid": os.getpid(),
            "secrets": [str(data / "owner.password"), str(other / "file"), "../other/file", str(Path(__file__))],
            "ipv4_port": _listen(stack, socket.AF_INET, ("127.0.0.1", 0)),
            "ipv6_port": _listen(stack, socket.AF_INET6, ("::1", 0)) if _has_ipv6() else None,
            "unix_path": str(data / "socket"),
            "abstract_name": f"quarterdeck-{os.getpid()}",
        }
        _listen(stack, socket.AF_UNIX, target["unix_path"])
        os.chmod(str(target["unix_path"]), 0o777)
        _listen(stack, socket.AF_UNIX, f"\0{target['abstract_name']}")
        script = f"cat skills/one/file {readable}/reference.txt; echo; python3 - {shlex.quote(json.dumps(target))}"
        script += f" <<'END'\n{_PROBE}\nEND\necho $?; touch kept; id -u"

        async def work() -> str:
            sandbox = await bubblewrap(worker.settings(readable=[str(readable)]), data_dir=data)
            return (await run(sandbox, script, own, one=skill)).output

        assert worker.run(work).splitlines() == [f"{_CANARY}reference", "DONE", "0", "1000"]
        assert (own / "kept").stat().st_uid == worker.user_id
        assert (skill / "file").read_text() == (other / "file").read_text() == _CANARY
        assert not os.listdir(own / "skills")


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as listener:
            listener.bind(("::1", 0))
    except OSError:
        return False
    return True

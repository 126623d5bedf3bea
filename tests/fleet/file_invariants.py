"""The files of a session and the results of the calls that changed them are stored together. A pure function of one
snapshot of the database."""

import hashlib
from collections.abc import Iterator

from tests.fleet.inputs import APPENDED, LOG
from tests.fleet.invariants import Session


def check_files(session: Session) -> Iterator[str]:
    """The line of a call is in the file exactly once if its result is stored, in the order of the results."""
    commands = {
        entry.data["call_id"]: entry.data["arguments"].get("command", "")
        for entry in session.entries
        if entry.type == "tool.call" and entry.data["name"] == "bash"
    }
    results = [entry.data for entry in session.entries if entry.type == "tool.result"]
    lines = [_line(commands[data["call_id"]]) for data in results if data["text"] == APPENDED]
    stored = [file.sha256 for file in session.files]
    expected = [hashlib.sha256("".join(lines).encode()).hexdigest()] if lines else []
    if stored != expected:
        yield f"{session.id}: {LOG} is not what its {len(lines)} calls wrote"
    elif not all(file.has_content for file in session.files):
        yield f"{session.id}: the content of {LOG} is not in the store"


def _line(command: str) -> str:
    return f"{command.removeprefix('echo ').partition(' ')[0]}\n"

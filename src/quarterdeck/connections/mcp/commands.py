"""The commands of stdio servers, as named in the file of the operator. Requests can only name an entry."""

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

_FILE_BYTES = 1024 * 1024


class CommandsError(Exception):
    """The file is unusable. One line that says why."""


class StdioCommand(Struct, frozen=True, forbid_unknown_fields=True):
    # Program and arguments. No shell.
    command: Annotated[tuple[str, ...], Meta(min_length=1)]
    environment: dict[Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*\Z")], str] = {}
    network: bool = False
    # Absolute paths of folders of the host that the server can read, besides those that every command can read.
    readable: tuple[Annotated[str, Meta(pattern=r"^/")], ...] = ()


def read_commands(file: str | None) -> dict[str, StdioCommand]:
    """By name. Raises CommandsError. Without a file there are no commands."""
    if file is None:
        return {}
    path = Path(file).expanduser()
    try:
        with path.open("rb") as source:
            text = source.read(_FILE_BYTES + 1)
        if len(text) > _FILE_BYTES:
            raise CommandsError(f"{path} is larger than {_FILE_BYTES} bytes")
        return msgspec.yaml.decode(text or b"{}", type=dict[str, StdioCommand])
    except OSError as fault:
        raise CommandsError(f"{path} cannot be read: {fault.strerror}") from fault
    except msgspec.MsgspecError as fault:
        raise CommandsError(f"{path} is not a list of commands: {fault}") from fault

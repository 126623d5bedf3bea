"""The tools of MCP servers as a run sees them. Whatever a server sends is bounded and made storable before it gets
here."""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import msgspec
from msgspec import Meta, Struct

from quarterdeck.connections.credentials.model import Authorization

# Between the names of a server and of its tool.
SEPARATOR = "__"
# Where a call carries the key of its event tool.started.
KEY_META = "quarterdeck/idempotency-key"


class McpTarget(Struct, frozen=True, kw_only=True):
    """A server, and how to connect to it. Exactly one of `url` and `command` is set."""

    server_id: UUID
    workspace_id: UUID
    name: str
    url: str | None
    # A name in the configuration of the operator.
    command: str | None
    authorization: Authorization | None
    # Changes with the server and with its credential: a connection of another revision is not used again.
    revision: str


class McpTool(Struct, frozen=True, kw_only=True):
    # As the server calls it.
    name: str
    description: str
    parameters: dict[str, Any]
    # The server's claim. Shown to people; it grants nothing.
    read_only: bool = False


class McpImage(Struct, frozen=True):
    data: bytes
    media_type: str


class McpResult(Struct, frozen=True, kw_only=True):
    text: str
    images: tuple[McpImage, ...] = ()
    is_error: bool = False


class McpFailure(Exception):
    """The server did not do what it was asked. The text is for the model and for people: bounded, without secrets. It
    says if a call may have taken effect."""


class PinnedTool(Struct, frozen=True, kw_only=True):
    """A tool that a run offers in all its attempts."""

    server_id: UUID
    # server__tool, as the model calls it.
    full_name: str
    tool: McpTool
    # In hex. Of the definition of the tool.
    definition_sha256: str
    # The definition is not the one that was first seen by a run, or last seen by a check.
    is_changed: bool = False


class UnavailableServer(Struct, frozen=True, kw_only=True):
    """A server whose tools a run does not have."""

    server_id: UUID
    # None: it was deleted.
    name: str | None
    # For people. May quote the server.
    reason: str

    @property
    def label(self) -> str:
        return self.name or str(self.server_id)


class PinnedTools(Struct, frozen=True):
    """What a run has of its servers in all its attempts."""

    tools: list[PinnedTool] = []
    unavailable: list[UnavailableServer] = []


def full_name(server_name: str, tool_name: str) -> str:
    """As models call it, and as policies name it."""
    return f"{server_name}{SEPARATOR}{model_name(tool_name)}"


def model_name(tool_name: str) -> str:
    """The names of models' tools have no dots."""
    return tool_name.replace(".", "_")


def definition_sha256(tool: McpTool) -> bytes:
    """Of everything that the model and people are told about the tool."""
    # Sorted: a server may list the keys of a schema in another order each time.
    return hashlib.sha256(msgspec.json.encode(tool, order="sorted")).digest()


def server_name(name: str) -> str:
    """Of a full name: the names of servers have no separator."""
    return name.partition(SEPARATOR)[0]


def pin(server_id: UUID, name: str, tools: Iterable[McpTool], known: Mapping[str, bytes]) -> list[PinnedTool]:
    """`known`: the hashes of the known definitions, by the server's names for the tools. Those of new tools are known,
    too, unless the server has too many."""
    pinned = []
    for tool in tools:
        sha256 = definition_sha256(tool)
        pinned.append(
            PinnedTool(
                server_id=server_id,
                full_name=full_name(name, tool.name),
                tool=tool,
                definition_sha256=sha256.hex(),
                is_changed=known.get(tool.name) != sha256,
            )
        )
    return pinned


# The commands of stdio servers, as named in the file of the operator. Requests can only name an entry.

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

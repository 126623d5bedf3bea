"""The built-in tools of a run, their names, and the instructions about the sandbox."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from quarterdeck.core.settings import SandboxSettings
from quarterdeck.sandbox.adapter import SANDBOX_FOLDER
from quarterdeck.sandbox.run_folders import RunSandbox
from quarterdeck.sandbox.scan import RESERVED
from quarterdeck.tools.bash import OUTPUT_FOLDER, bash
from quarterdeck.tools.files import (
    edit_file,
    list_files,
    read_file,
    search_files,
    write_file,
)
from quarterdeck.tools.model import BuiltIn, ToolSpec
from quarterdeck.tools.tool import CallContext, Effect, Tool, parameters

# The tools of a session with a sandbox, and the instructions about it.


def sandbox_tools(sandbox: RunSandbox | None, settings: SandboxSettings) -> list[Tool]:
    """`sandbox` is None if the worker has none. Then every call is refused."""
    return [
        bash(sandbox, settings),
        read_file(sandbox),
        write_file(sandbox),
        edit_file(sandbox),
        list_files(sandbox),
        search_files(sandbox),
    ]


def sandbox_instructions(settings: SandboxSettings) -> str:
    network = "It has access to the network." if settings.network else "It has no network."
    return (
        f"You have a sandbox with a folder of this session, {SANDBOX_FOLDER}, whose files stay from call to call and "
        f"from run to run. {BuiltIn.BASH} runs commands in it. {network} Each command starts anew: only files in "
        f"{SANDBOX_FOLDER} are kept, and no process, variable or file elsewhere. Paths of the file tools are relative "
        f"to {SANDBOX_FOLDER}; prefer {BuiltIn.WRITE_FILE} and {BuiltIn.EDIT_FILE} to commands that write files. "
        f"Files that people attach are in attachments/, long outputs in {OUTPUT_FOLDER}/. {RESERVED}/ cannot be "
        "written."
    )


# The tool `current_time`.


def current_time(now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Tool:
    async def tell(arguments: dict[str, Any], context: CallContext) -> str:
        return now().astimezone(UTC).strftime("%A %Y-%m-%d %H:%M:%S UTC")

    spec = ToolSpec(BuiltIn.CURRENT_TIME, "The current date and time in UTC.", parameters({}))
    return Tool(spec=spec, effect=Effect.READS, carry_out=tell)

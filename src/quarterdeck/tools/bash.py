"""The tool `bash`: runs a command in the sandbox, in the folder of the session."""

import asyncio
import codecs
import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from typing import IO, Any

from quarterdeck.blobs.model import PIECE_BYTES
from quarterdeck.core.settings import SandboxSettings
from quarterdeck.core.text_types import storable
from quarterdeck.sandbox.adapter import SANDBOX_FOLDER, Command, CommandOutcome
from quarterdeck.sandbox.beneath import descriptor, make_folders, replace_file
from quarterdeck.sandbox.folders import Folder
from quarterdeck.sandbox.model import Refusal
from quarterdeck.sandbox.run_folders import RunSandbox
from quarterdeck.tools.files import encoded
from quarterdeck.tools.model import BuiltIn, ToolSpec
from quarterdeck.tools.tool import (
    CallContext,
    Effect,
    Output,
    Tool,
    number_argument,
    parameters,
    sandboxed_tool,
    text_argument,
)

# The whole output of a command, if it is longer than what the model is shown.
OUTPUT_FOLDER = ".output"
_LIVE_BYTES = 8 * 1024
_FLOOD_PAUSES = 10
# More than the notices beside the output.
_NOTICES_BYTES = 1024


def bash(sandbox: RunSandbox | None, settings: SandboxSettings) -> Tool:
    properties = {
        "command": {"type": "string", "description": f"Run by bash in {SANDBOX_FOLDER}."},
        "timeout_seconds": {
            "type": "number",
            "description": f"The command is ended after this time. At most {settings.command_seconds:g}, the default.",
        },
    }
    network = "with access to the network" if settings.network else "without network"
    description = (
        f"Run a command in the sandbox, {network}. Only files in {SANDBOX_FOLDER} are kept; processes end "
        "with the call. The result has its output and, unless it is 0, its exit code."
    )
    spec = ToolSpec(BuiltIn.BASH, description, parameters(properties, ["timeout_seconds"]))
    # With a network, a command can change something that cannot be undone.
    return sandboxed_tool(spec, Effect.EXTERNAL if settings.network else Effect.WRITES, sandbox, _bash)


async def _bash(sandbox: RunSandbox, arguments: dict[str, Any], context: CallContext) -> Output:
    command = text_argument(arguments, "command")
    longest = sandbox.settings.command_seconds
    seconds = number_argument(arguments, "timeout_seconds", longest) or longest
    if seconds > longest:
        raise Refusal(f"a command can run for {longest:g} s at most.")
    if "\0" in command:
        raise Refusal("the command has U+0000, which a shell cannot take.")
    encoded(command)
    mounts = await sandbox.skills.mounts()

    async def run(folder: Folder) -> tuple[CommandOutcome, str]:
        folders = sandbox.session_folder.folders
        with tempfile.TemporaryFile(dir=folders.spools) as output:
            order = Command(
                arguments=["bash", "-c", command],
                folder=folder.path,
                user_id=folder.owner,
                skills=mounts,
                output=output,
                seconds=seconds,
            )
            fcntl.fcntl(output, fcntl.F_SETFL, fcntl.fcntl(output, fcntl.F_GETFL) | os.O_APPEND)
            showing = asyncio.create_task(_show(output, context.on_output, sandbox.delta_seconds))
            try:
                outcome = await sandbox.adapter.run(order)
            finally:
                showing.cancel()
                await asyncio.wait({showing})
            limit = max(_NOTICES_BYTES, min(sandbox.settings.output_bytes, sandbox.result_bytes - _NOTICES_BYTES))
            return outcome, await folders.run(folder, lambda: _keep(folder, output, limit, context.key))

    (outcome, text), changes, notice = await sandbox.session_folder.change(run)
    return Output(f"{_result(outcome, text)}{notice}", changes)


def _result(outcome: CommandOutcome, text: str) -> str:
    if outcome.stopped is not None:
        return f"{text}\n[{outcome.stopped} Exit code {outcome.exit_code}.]"
    if outcome.exit_code != 0:
        return f"{text}\n[Exit code {outcome.exit_code}.]"
    return text or "[No output.]"


async def _show(output: IO[bytes], on_output: Callable[[str], None], interval_seconds: float) -> None:
    """Sends new output from time to time: only the end of a flood, and less often. Each piece is a notification of
    the database."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    at, pause_seconds = 0, interval_seconds
    while True:
        await asyncio.sleep(pause_seconds)
        size = os.fstat(output.fileno()).st_size
        pause_seconds = interval_seconds
        if size - at > _LIVE_BYTES:
            at, pause_seconds = size - _LIVE_BYTES, _FLOOD_PAUSES * interval_seconds
            on_output("\n[…]\n")
        piece = os.pread(output.fileno(), max(0, size - at), at)
        at += len(piece)
        if piece:
            on_output(decoder.decode(piece).replace("\0", "\ufffd"))


def _keep(folder: Folder, output: IO[bytes], limit: int, key: str) -> str:
    """The output as the model is shown it. If it is cut, the whole becomes a file of the session."""
    size = os.fstat(output.fileno()).st_size
    text = _text(os.pread(output.fileno(), limit, 0))
    if size <= limit and len(text.encode()) <= limit:
        return text
    half = limit // 2
    start = _text(os.pread(output.fileno(), half, 0)).encode()[:half].decode("utf-8", "ignore")
    end = _text(os.pread(output.fileno(), half, max(0, size - half))).encode()[-half:].decode("utf-8", "ignore")
    path = f"{OUTPUT_FOLDER}/{key[:8]}.txt"
    where = f"The whole output is in {path}"
    try:
        with descriptor(make_folders(folder.descriptor, OUTPUT_FOLDER, folder.owner)) as parent:
            replace_file(parent, f"{key[:8]}.txt", _pieces(output, size), folder.owner)
    except OSError:
        # The command made a file or a link at this path.
        where = f"The whole output could not be written to {path}"
    return f"{start}\n[Output of {size} bytes, cut here. {where}.]\n{end}"


def _text(data: bytes) -> str:
    return storable(data.decode("utf-8", "replace"))


def _pieces(output: IO[bytes], size: int) -> Iterator[bytes]:
    for at in range(0, size, PIECE_BYTES):
        yield os.pread(output.fileno(), min(PIECE_BYTES, size - at), at)

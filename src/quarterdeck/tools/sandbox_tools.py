"""The tools of a session with a workspace, and the instructions about it."""

from quarterdeck.core.settings import SandboxSettings
from quarterdeck.sandbox.run_folders import WORKSPACE, Place
from quarterdeck.sandbox.scan import RESERVED
from quarterdeck.tools.bash import BASH, OUTPUT_FOLDER, bash
from quarterdeck.tools.edit_file import EDIT_FILE, edit_file
from quarterdeck.tools.list_files import list_files
from quarterdeck.tools.read_file import read_file
from quarterdeck.tools.search_files import search_files
from quarterdeck.tools.tool import Tool
from quarterdeck.tools.write_file import WRITE_FILE, write_file


def workspace_tools(place: Place | None, settings: SandboxSettings) -> list[Tool]:
    """`place` is None if the worker has no sandbox. Then every call is refused."""
    return [
        bash(place, settings),
        read_file(place),
        write_file(place),
        edit_file(place),
        list_files(place),
        search_files(place),
    ]


def workspace_instructions(settings: SandboxSettings) -> str:
    network = "It has access to the network." if settings.network else "It has no network."
    return (
        f"You have a workspace: a folder of this session, {WORKSPACE}, whose files stay from call to call and from run "
        f"to run. {BASH} runs commands in it, in a sandbox. {network} Each command starts anew: only files in the "
        "workspace are kept, and no process, variable or file elsewhere. Paths of the file tools are relative to the "
        f"workspace; prefer {WRITE_FILE} and {EDIT_FILE} to commands that write files. Files that people attach are in "
        f"attachments/, long outputs in {OUTPUT_FOLDER}/. {RESERVED}/ cannot be written."
    )

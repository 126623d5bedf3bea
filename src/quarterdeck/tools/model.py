"""What a model is told about a tool, and what a policy says of it."""

from enum import StrEnum
from typing import Annotated, Any

from msgspec import Meta, Struct

from quarterdeck.core.text_types import Text


class ToolRule(StrEnum):
    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


class BuiltIn(StrEnum):
    """The tools of callers cannot have these names."""

    # Only the demo model has it: worker/agent.py.
    ADD_NOTE = "add_note"
    BASH = "bash"
    CURRENT_TIME = "current_time"
    EDIT_FILE = "edit_file"
    LIST_FILES = "list_files"
    LIST_SKILL_FILES = "list_skill_files"
    READ_FILE = "read_file"
    READ_SKILL_FILE = "read_skill_file"
    SEARCH_FILES = "search_files"
    WRITE_FILE = "write_file"


class ToolSpec(Struct, frozen=True):
    """What a model is told about a tool. Sessions use it too, for the tools of their callers."""

    # `$` alone would also match before a final newline.
    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}(?![\s\S])")]
    description: Annotated[Text, Meta(max_length=10_000)]
    parameters: Annotated[dict[str, Any], Meta(description="JSON Schema with the type `object`.")]

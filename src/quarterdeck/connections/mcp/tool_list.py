"""Reads the tools of a server, and keeps what can be offered to a model."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
import msgspec

from quarterdeck.connections.mcp.cleaning import clean_json, clean_line, clean_start
from quarterdeck.connections.mcp.model import McpTool, full_name
from quarterdeck.core.logging import fields, log
from quarterdeck.core.settings import McpSettings

_NAME = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)
# Longest name that models are given for a tool.
_FULL_NAME_CHARACTERS = 64
_DESCRIPTION_CHARACTERS = 10_000
# Largest schema of one tool. Larger ones are not cleaned.
_SCHEMA_BYTES = 64 * 1024
# A list may end with any page, so the number of pages needs a bound of its own.
_PAGES = 50
# In one line of the log.
_NAMED = 10

FetchPage = Callable[[str | None], Awaitable[types.ListToolsResult]]


class _Unusable(Exception):
    """Why a tool is not offered."""


async def read_tools(
    fetch: FetchPage, server_name: str, settings: McpSettings, redact: Callable[[str], str]
) -> list[McpTool]:
    """`redact` removes secrets from text."""
    found: dict[str, McpTool] = {}
    left_out: list[str] = []
    # Reading unusable tools takes time too.
    remaining_tools = 2 * settings.tools
    remaining_bytes = settings.tools_bytes
    cursor: str | None = None
    for _ in range(_PAGES):
        page = await fetch(cursor)
        for listed in page.tools[:remaining_tools]:
            # Other tasks go on: cleaning takes milliseconds for each tool.
            await asyncio.sleep(0)
            try:
                if len(found) >= settings.tools:
                    raise _Unusable(f"the server has more than {settings.tools} tools")
                tool = _read(listed, server_name, redact)
                name = full_name(server_name, tool.name)
                if name in found:
                    raise _Unusable("another tool has the same name")
                size = _size(tool)
                if size > remaining_bytes:
                    raise _Unusable(f"the tools of the server are larger than {settings.tools_bytes} bytes")
            except _Unusable as fault:
                left_out.append(f"{clean_line(clean_start(listed.name, 100, redact), 100)}: {fault}")
            else:
                remaining_bytes -= size
                found[name] = tool
        remaining_tools -= len(page.tools)
        cursor = page.next_cursor
        if not cursor or remaining_tools <= 0:
            break
    if left_out:
        log.warning(
            "tools of an MCP server are not offered",
            extra=fields(server=server_name, number=len(left_out), tools=left_out[:_NAMED]),
        )
    return list(found.values())


def _read(listed: types.Tool, server_name: str, redact: Callable[[str], str]) -> McpTool:
    if len(listed.name) > _FULL_NAME_CHARACTERS or len(full_name(server_name, listed.name)) > _FULL_NAME_CHARACTERS:
        raise _Unusable(f"its name with that of the server is longer than {_FULL_NAME_CHARACTERS} characters")
    if not _NAME.fullmatch(listed.name):
        raise _Unusable("its name has characters other than letters, digits, `_`, `.` and `-`")
    if redact(listed.name) != listed.name:
        raise _Unusable("its name has a secret")
    hints = listed.annotations
    return McpTool(
        name=listed.name,
        description=clean_start(listed.description or listed.title or "", _DESCRIPTION_CHARACTERS, redact),
        parameters=_read_parameters(listed.input_schema, redact),
        read_only=hints is not None and hints.read_only_hint is True,
    )


def _read_parameters(schema: dict[str, Any], redact: Callable[[str], str]) -> dict[str, Any]:
    """What all providers need. They check the rest themselves, each in its own way."""
    try:
        if len(msgspec.json.encode(schema)) > _SCHEMA_BYTES:
            raise ValueError(f"it is larger than {_SCHEMA_BYTES} bytes")
        cleaned: dict[str, Any] = clean_json(schema)
        # Secrets are found in the encoded form too.
        text = redact(msgspec.json.encode(cleaned).decode())
        cleaned = msgspec.json.decode(text)
    except (ValueError, OverflowError, msgspec.MsgspecError) as fault:
        raise _Unusable(f"its schema cannot be stored: {fault}") from fault
    if cleaned.get("type") != "object":
        raise _Unusable('its schema has not "type": "object"')
    properties = cleaned.get("properties", {})
    if not isinstance(properties, dict) or not all(isinstance(one, dict | bool) for one in properties.values()):
        raise _Unusable("the properties of its schema are no JSON Schemas")
    required = cleaned.get("required", [])
    if not isinstance(required, list) or not all(isinstance(one, str) for one in required):
        raise _Unusable("`required` in its schema is no list of names")
    return cleaned


def _size(tool: McpTool) -> int:
    return len(tool.name) + len(tool.description.encode()) + len(msgspec.json.encode(tool.parameters))

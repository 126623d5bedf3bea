"""Reads the lists of tools and the results of calls that MCP servers send, and makes them fit to be stored, shown to
people and given to models.

Text is cut before it is cleaned: cleaning takes up to 0.2 µs for each character, and nothing else goes on in the
process meanwhile. Results are read in a thread: every single step is short.
"""

import asyncio
import re
from base64 import b64decode
from collections.abc import Callable
from typing import Any

import mcp_types as types
import msgspec
from mcp.client import Client

from quarterdeck.connections.credentials.redaction import MAX_FORM_CHARACTERS
from quarterdeck.connections.mcp.guarded_streams import decodes_quickly
from quarterdeck.connections.mcp.model import McpImage, McpResult, McpTool, full_name
from quarterdeck.core.logging import fields, log
from quarterdeck.core.settings import McpSettings
from quarterdeck.core.text_types import storable

# C0 and C1 controls except tab and newline, line separators, marks that change the direction of text, and tag
# characters, which are invisible.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]+")
_MAX_DEPTH = 50
# In a thread, long text lets the event loop go on between two pieces.
_PIECE_CHARACTERS = 16 * 1024


def clean_text(text: str) -> str:
    pieces = range(0, len(text), _PIECE_CHARACTERS)
    return "".join(_CONTROL.sub("", storable(text[start : start + _PIECE_CHARACTERS])) for start in pieces)


def clean_start(text: str, max_characters: int, redact: Callable[[str], str]) -> str:
    """The beginning of a text of any length, without secrets."""
    start = text[: max_characters + MAX_FORM_CHARACTERS]
    # Redacted before and after: a secret may hold what is cleaned away, and what is cleaned may form a secret.
    cleaned = redact(clean_text(redact(start)))
    if len(start) < len(text):
        # It may end with a part of a secret, which was not recognised.
        cleaned = cleaned[:-MAX_FORM_CHARACTERS]
    return cleaned[:max_characters]


def clean_line(text: str, max_characters: int) -> str:
    """Of a name or of an error."""
    # A bound first: the text may be long.
    line = " ".join(clean_text(text[: max_characters * 4]).split())
    return line if len(line) <= max_characters else f"{line[: max_characters - 1]}…"


def clean_json(value: Any, depth: int = 1) -> Any:
    """Raises ValueError if the value is nested too deeply."""
    if depth > _MAX_DEPTH:
        raise ValueError("nested too deeply")
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(name): clean_json(part, depth + 1) for name, part in value.items()}
    if isinstance(value, list):
        return [clean_json(part, depth + 1) for part in value]
    return value


# Those that model providers take, and how their contents begin. A provider refuses a request with another content, and
# the run would fail.
_IMAGE_STARTS = {
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/gif": re.compile(rb"GIF8[79]a"),
    "image/webp": re.compile(rb"RIFF.{4}WEBP", re.DOTALL),
}
# Images that are kept of one result.
_IMAGES = 10
_NAME_CHARACTERS = 500


class _Unusable(Exception):
    """Why an image or a tool is left out."""


class _Parts:
    def __init__(self, image_bytes: int) -> None:
        self._image_bytes = image_bytes
        self.texts: list[str] = []
        self.images: list[McpImage] = []
        # What the texts say is complete without the structured content.
        self.plain: list[str] = []

    def add(self, block: types.ContentBlock) -> None:
        if isinstance(block, types.TextContent):
            self.plain.append(block.text)
            self.texts.append(block.text)
        elif isinstance(block, types.ImageContent):
            self._add_image(block.data, block.mime_type)
        elif isinstance(block, types.EmbeddedResource):
            self._add_resource(block.resource)
        elif isinstance(block, types.ResourceLink):
            self.texts.append(f"[Resource {_line(block.name)}: {_line(str(block.uri))}]")
        else:
            self.texts.append(f"[Audio of the type {_line(block.mime_type)} was left out.]")

    def _add_resource(self, resource: types.TextResourceContents | types.BlobResourceContents) -> None:
        uri = _line(str(resource.uri))
        if isinstance(resource, types.TextResourceContents):
            self.texts.append(f"[Resource {uri}]\n{resource.text}")
        elif resource.mime_type in _IMAGE_STARTS:
            self._add_image(resource.blob, resource.mime_type)
        else:
            kind = _line(resource.mime_type or "unknown")
            self.texts.append(f"[The resource {uri} of the type {kind} was left out: it is not text.]")

    def _add_image(self, data: str, media_type: str) -> None:
        try:
            self.images.append(self._image(data, media_type))
        except _Unusable as fault:
            self.texts.append(f"[An image was left out: {fault}.]")

    def _image(self, data: str, media_type: str) -> McpImage:
        if media_type not in _IMAGE_STARTS:
            raise _Unusable(f"its type is {_line(media_type)}")
        if len(self.images) >= _IMAGES:
            raise _Unusable(f"a result has at most {_IMAGES}")
        if len(data) * 3 // 4 - data[-2:].count("=") > self._image_bytes:
            raise _Unusable(f"it is larger than {self._image_bytes} bytes")
        try:
            decoded = b64decode(data, validate=True)
        except ValueError:
            raise _Unusable("it is not valid base64") from None
        if _IMAGE_STARTS[media_type].match(decoded) is None:
            raise _Unusable(f"its content is not {media_type}")
        return McpImage(decoded, media_type)

    def add_structured(self, content: Any) -> None:
        """Servers should repeat it as text. What they repeated is not given to the model twice."""
        if decodes_quickly("\n".join(self.plain).encode()) and any(_is_same(text, content) for text in self.plain):
            return
        # Also encodes NaN, which is no JSON, as null.
        self.texts.append(msgspec.json.encode(content).decode())


def to_result(
    found: types.CallToolResult, image_bytes: int, text_characters: int, redact: Callable[[str], str]
) -> McpResult:
    parts = _Parts(image_bytes)
    for block in found.content:
        parts.add(block)
    if found.structured_content is not None:
        parts.add_structured(found.structured_content)
    text = "\n".join(parts.texts)
    start = clean_start(text, text_characters, redact)
    if len(text) > text_characters:
        start += f"\n[Cut here: the server sent {len(text)} characters.]"
    return McpResult(text=start, images=tuple(parts.images), is_error=found.is_error)


def _is_same(text: str, content: Any) -> bool:
    # Libraries wrap a text in an object with one field.
    if isinstance(content, dict) and len(content) == 1 and list(content.values()) == [text]:
        return True
    try:
        return bool(msgspec.json.decode(text) == content)
    except (msgspec.DecodeError, RecursionError):
        return False


def _line(text: str) -> str:
    return clean_line(text, _NAME_CHARACTERS)


# Reads the tools of a server, and keeps what can be offered to a model.

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


async def read_tools(
    client: Client, server_name: str, settings: McpSettings, redact: Callable[[str], str]
) -> list[McpTool]:
    """`redact` removes secrets from text."""
    found: dict[str, McpTool] = {}
    left_out: list[str] = []
    # Reading unusable tools takes time too.
    remaining_tools = 2 * settings.tools
    remaining_bytes = settings.tools_bytes
    cursor: str | None = None
    for _ in range(_PAGES):
        page = await client.list_tools(cursor=cursor)
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

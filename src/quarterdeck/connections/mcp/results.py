"""Turns the result of a call into text and images. Runs in a thread: every single step is short."""

import re
from base64 import b64decode
from collections.abc import Callable
from typing import Any

import mcp_types as types
import msgspec

from quarterdeck.connections.mcp.cleaning import clean_line, clean_start
from quarterdeck.connections.mcp.guarded_streams import decodes_quickly
from quarterdeck.connections.mcp.model import McpImage, McpResult

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
# A multiple of four.
_BASE64_PIECE_CHARACTERS = 1024 * 1024


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
        reason = None
        if media_type not in _IMAGE_STARTS:
            reason = f"its type is {_line(media_type)}"
        elif len(self.images) >= _IMAGES:
            reason = f"a result has at most {_IMAGES}"
        # Base64 is a third longer.
        elif len(data) * 3 // 4 > self._image_bytes + 3:
            reason = f"it is larger than {self._image_bytes} bytes"
        if reason is None:
            try:
                decoded = _decoded(data)
            except ValueError:
                reason = "it is not valid base64"
            else:
                if len(decoded) > self._image_bytes:
                    reason = f"it is larger than {self._image_bytes} bytes"
                elif _IMAGE_STARTS[media_type].match(decoded) is None:
                    reason = f"its content is not {media_type}"
                else:
                    self.images.append(McpImage(decoded, media_type))
                    return
        self.texts.append(f"[An image was left out: {reason}.]")

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


def _decoded(data: str) -> bytes:
    """Raises ValueError, of which binascii.Error is a kind."""
    pieces = [data[start : start + _BASE64_PIECE_CHARACTERS] for start in range(0, len(data), _BASE64_PIECE_CHARACTERS)]
    if any("=" in piece for piece in pieces[:-1]):
        raise ValueError("data after the padding")
    return b"".join(b64decode(piece, validate=True) for piece in pieces)


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

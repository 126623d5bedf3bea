"""What becomes of the result of a call of an MCP server."""

import base64

import mcp_types as types

from quarterdeck.connections.mcp.answers import to_result

_STARTS = {
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/jpeg": b"\xff\xd8\xff\xe0",
    "image/gif": b"GIF89a",
    "image/webp": b"RIFF\n\0\0\0WEBP",
}


def _image(content: bytes, media_type: str) -> types.ImageContent:
    return types.ImageContent(type="image", data=base64.b64encode(content).decode(), mime_type=media_type)


def test_images_are_what_they_say() -> None:
    """A provider refuses a request with a broken image."""
    images = [_image(start + b"...", media_type) for media_type, start in _STARTS.items()]
    broken = [_image(b"<html>", media_type) for media_type in _STARTS]
    svg = _image(b"<svg/>", "image/svg+xml")
    large = _image(_STARTS["image/png"] + bytes(100), "image/png")
    result = to_result(types.CallToolResult(content=[*images, *broken, svg, large]), 50, 10_000, lambda text: text)
    assert [image.media_type for image in result.images] == list(_STARTS)
    assert result.text.splitlines() == [
        *(f"[An image was left out: its content is not {media_type}.]" for media_type in _STARTS),
        "[An image was left out: its type is image/svg+xml.]",
        "[An image was left out: it is larger than 50 bytes.]",
    ]

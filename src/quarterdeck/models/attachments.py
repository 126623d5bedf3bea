"""Attachments of inputs and images in results, as models get them. Pure functions, no I/O.

A text is part of the prompt, an image or a PDF is sent as it is, and other files are only mentioned. How much of a
request they may use is bounded: beyond that, older ones are only mentioned.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

import msgspec

from quarterdeck.core.settings import ModelSettings
from quarterdeck.core.text_types import storable
from quarterdeck.models.model import Attachment, AttachmentContent, ResultImage, ToolResult, Turn, UserTurn

# As in files/rules.py: a file has one of these types only if it is UTF-8.
TEXTS = (
    "text/*",
    *(f"*{sign}{name}" for name in ("json", "xml", "yaml") for sign in "/+"),
    *(f"application/{name}" for name in ("javascript", "json5", "jsonl", "sql", "toml", "typescript")),
    *(f"application/x-{name}" for name in ("*sh", "javascript", "ndjson", "tex", "yaml")),
)
IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
PDF = "application/pdf"
# A model may take less than its provider: then it refuses the request.
_ALL = (*TEXTS, *IMAGES, PDF)
# By the first part of a model's name. Providers and endpoints that are not here take all.
_LESS: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("azure", "groq", "huggingface", "mistral", "together", "xai"), (*TEXTS, *IMAGES)),
    **dict.fromkeys(("cohere", "deepseek"), TEXTS),
}

# Providers count an image by its size in pixels, up to about this much.
_IMAGE_TOKENS = 1600
# A page has about 2,000 tokens, as text and as an image, and seldom less than 50 kB.
_PDF_BYTES_PER_TOKEN = 25
_TEXT_BYTES_PER_TOKEN = 4
# Name, type, size and path.
_LABEL_TOKENS = 60
# Largest share of the context that attachments get, so that the conversation keeps its part.
_CONTEXT_SHARE = 0.5
_MISSING = "Its content could not be read."
_NOT_TAKEN = "You cannot be shown this kind of file."
_LEFT_OUT = "Its content is left out of this request, because the attachments are too large."


def taken_by(provider: str) -> Sequence[str]:
    """Patterns of media types."""
    return _LESS.get(provider, _ALL)


def takes(model_name: str, media_type: str) -> bool:
    return _matches(media_type, taken_by(model_name.partition(":")[0]))


def is_text(media_type: str) -> bool:
    return _matches(media_type, TEXTS)


def description_of_taken(model_name: str) -> str:
    names = {"text": "text/plain", "images (PNG, JPEG, GIF, WebP)": IMAGES[0], "PDF": PDF}
    *others, last = (name for name, media_type in names.items() if takes(model_name, media_type))
    return f"{', '.join(others)} and {last}" if others else last


def _matches(media_type: str, patterns: Iterable[str]) -> bool:
    plain = media_type.partition(";")[0].strip()
    return any(fnmatchcase(plain, pattern) for pattern in patterns)


def attachment_tokens(turn: UserTurn | ToolResult) -> int:
    return _LABEL_TOKENS * len(_files(turn)) + sum(content.tokens for content in turn.contents)


def _files(turn: Turn) -> Sequence[Attachment | ResultImage]:
    match turn:
        case UserTurn():
            return turn.attachments
        case ToolResult():
            return turn.images
        case _:
            return ()


def with_selection(
    turns: Sequence[Turn], is_taken: Callable[[str], bool], settings: ModelSettings, context_tokens: int
) -> list[Turn]:
    """Decides for each attachment and image whether the model gets its content, newest first. `is_taken`: whether the
    model takes files of this media type."""
    left_bytes = settings.attachment_bytes
    left_tokens = int(context_tokens * _CONTEXT_SHARE)
    selected: list[Turn] = []
    for turn in reversed(turns):
        files = _files(turn)
        if files and isinstance(turn, UserTurn | ToolResult):
            contents = []
            for attachment in files:
                size, tokens = _cost(attachment, settings)
                if not is_taken(attachment.media_type):
                    contents.append(AttachmentContent(note=_NOT_TAKEN))
                elif size > left_bytes or tokens > left_tokens:
                    contents.append(AttachmentContent(note=_LEFT_OUT))
                else:
                    left_bytes, left_tokens = left_bytes - size, left_tokens - tokens
                    contents.append(AttachmentContent(tokens=tokens, wanted_bytes=size))
            selected.append(msgspec.structs.replace(turn, contents=tuple(contents)))
        else:
            selected.append(turn)
    selected.reverse()
    return selected


def _cost(attachment: Attachment | ResultImage, settings: ModelSettings) -> tuple[int, int]:
    """Bytes and estimated tokens in a request."""
    if is_text(attachment.media_type):
        size = min(attachment.bytes, settings.attachment_text_bytes)
        return size, -(-size // _TEXT_BYTES_PER_TOKEN)
    if attachment.media_type == PDF:
        return attachment.bytes, -(-attachment.bytes // _PDF_BYTES_PER_TOKEN)
    return attachment.bytes, _IMAGE_TOKENS


def omitted_files(turns: Iterable[Turn]) -> int:
    """How many are left out for want of room."""
    return sum(
        content.note == _LEFT_OUT
        for turn in turns
        if isinstance(turn, UserTurn | ToolResult)
        for content in turn.contents
    )


def wanted(turns: Iterable[Turn]) -> dict[str, int]:
    """The contents to be loaded, by SHA-256, with the number of bytes from their start."""
    found: dict[str, int] = {}
    for turn in turns:
        if isinstance(turn, UserTurn | ToolResult):
            for attachment, content in zip(_files(turn), turn.contents, strict=False):
                if content.wanted_bytes is not None:
                    found[attachment.sha256] = max(found.get(attachment.sha256, 0), content.wanted_bytes)
    return found


def with_contents(turns: Iterable[Turn], loaded: Mapping[str, bytes]) -> list[Turn]:
    """The turns with the contents that were loaded. The model is told about those that could not be read."""
    return [
        _with_contents(turn, loaded) if isinstance(turn, UserTurn | ToolResult) and turn.contents else turn
        for turn in turns
    ]


def _with_contents(turn: UserTurn | ToolResult, loaded: Mapping[str, bytes]) -> UserTurn | ToolResult:
    contents = []
    for attachment, content in zip(_files(turn), turn.contents, strict=True):
        if content.wanted_bytes is None:
            contents.append(content)
        elif (data := loaded.get(attachment.sha256)) is None:
            contents.append(AttachmentContent(note=_MISSING))
        else:
            contents.append(msgspec.structs.replace(content, data=data[: content.wanted_bytes]))
    return msgspec.structs.replace(turn, contents=tuple(contents))


def text_of(attachment: Attachment, content: AttachmentContent) -> str | None:
    """None: it is not a text, or its content is not there."""
    if content.data is None or not is_text(attachment.media_type):
        return None
    return storable(content.data.decode("utf-8", "replace"))


def image_note(image: ResultImage, content: AttachmentContent) -> str:
    """What the text of a result says about one of its images. Empty: the model gets the image."""
    if content.data is not None:
        return ""
    return f"[Image ({image.media_type}, {image.bytes} bytes). {content.note or _MISSING}]"


def block(attachment: Attachment, content: AttachmentContent) -> str:
    """What the prompt says about an attachment, with its text if it is one."""
    where = "" if attachment.path is None else f", path in the sandbox: {attachment.path}"
    head = f"Attachment {attachment.name} ({attachment.media_type}, {attachment.bytes} bytes{where})"
    text = text_of(attachment, content)
    if text is None:
        note = "" if content.data is not None else f" {content.note or _MISSING}"
        return f"[{head}.{note}]"
    cut = "" if content.wanted_bytes == attachment.bytes else f" Here are its first {content.wanted_bytes} bytes."
    return f"[{head}.{cut}]\n{text}\n[End of attachment {attachment.name}]"

"""The files of a session: request and response bodies."""

from typing import Annotated

from msgspec import Meta, Struct

from quarterdeck.core.example_ids import MORNING
from quarterdeck.core.text_types import Moment
from quarterdeck.sandbox.manifest import FileKind


class SessionFileBody(Struct, frozen=True, kw_only=True):
    path: Annotated[str, Meta(description="Relative to the session's folder, with `/` between its parts.")]
    kind: Annotated[FileKind, Meta(description="Folders are listed only while they are empty.")]
    bytes: int
    mode: Annotated[int, Meta(ge=0, le=0o777, description="Permission bits, as a decimal number: 420 is 0644.")]
    sha256: Annotated[str | None, Meta(description="Of the content, in hex. null: it is not a file.")]
    target: Annotated[str | None, Meta(description="Of a link, relative to its folder. null: it is not a link.")]
    modified_at: Moment


class SessionFilePage(Struct, frozen=True):
    items: list[SessionFileBody]
    next_cursor: str | None


EXAMPLES = (
    SessionFilePage(
        [
            SessionFileBody(
                path="report/summary.md",
                kind=FileKind.FILE,
                bytes=5,
                mode=0o644,
                sha256="2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
                target=None,
                modified_at=MORNING,
            )
        ],
        None,
    ),
)

"""Examples of session files for the OpenAPI document."""

from quarterdeck.core.example_ids import MORNING
from quarterdeck.sandbox.manifest import FileKind
from quarterdeck.session_files.model import SessionFileBody, SessionFilePage

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

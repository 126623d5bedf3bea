"""Examples of session files for the OpenAPI document."""

from quarterdeck.agents.workspace.model import FileKind
from quarterdeck.conversations.workspace_files.model import SessionFileBody, SessionFilePage
from quarterdeck.core.example_ids import MORNING

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

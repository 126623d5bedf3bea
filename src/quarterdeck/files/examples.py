"""Example values for the OpenAPI document."""

from quarterdeck.core.example_ids import ADA, FILE, MORNING, WORKSPACE
from quarterdeck.files.model import FileBody

EXAMPLES = (
    FileBody(
        id=FILE,
        workspace_id=WORKSPACE,
        name="incidents.csv",
        media_type="text/csv",
        bytes=48_213,
        sha256="2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
        created_at=MORNING,
        created_by=ADA,
    ),
)

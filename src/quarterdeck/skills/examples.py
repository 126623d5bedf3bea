"""Example values for the OpenAPI document."""

from uuid import UUID

from quarterdeck.core.example_ids import ADA, MORNING, SKILL, WORKSPACE
from quarterdeck.skills.model import (
    ChangeSkillBody,
    CreateSkillBody,
    FileChange,
    FileDiffBody,
    Manifest,
    ManifestFile,
    SkillBody,
    SkillDiffBody,
    SkillPage,
    SkillVersionBody,
    SkillVersionItem,
    SkillVersionPage,
)

_VERSION = UUID("0192f0da-6f3c-7b18-8d94-4e1a7c5f2b08")
_FRONTMATTER = {"name": "incident-report", "description": "Writes the weekly incident report."}

_MANIFEST = Manifest(
    files=[
        ManifestFile("SKILL.md", 812, "5c1e0a4be2f7d3968a0b4c7d1e2f3a5b6c7d8e9f0a1b2c3d4e5f60718293a4b5", False),
        ManifestFile("run.sh", 240, "a94f5374fce5edbc8e2a8697c15331677e6ebf0b1c2d3e4f5061728394a5b6c7", True),
    ],
    unpacked_bytes=1052,
    archive_sha256="9b74c9897bac770ffc029102a200c5de1f2e3d4c5b6a79880716253443526170",
)

_SKILL = SkillBody(
    id=SKILL,
    workspace_id=WORKSPACE,
    name="incident-report",
    description="Writes the weekly incident report.",
    latest_version=2,
    default_version=1,
    revision=4,
    archived_at=None,
    created_at=MORNING,
    created_by=ADA,
)

EXAMPLES = (
    CreateSkillBody("incident-report"),
    _SKILL,
    SkillPage([_SKILL], None),
    ChangeSkillBody(default_version=1),
    SkillVersionBody(
        id=_VERSION, skill_id=SKILL, version=1, bundle_bytes=743, frontmatter=_FRONTMATTER, manifest=_MANIFEST
    ),
    SkillVersionPage(
        [
            SkillVersionItem(
                id=_VERSION,
                skill_id=SKILL,
                version=1,
                bundle_bytes=743,
                frontmatter=_FRONTMATTER,
                created_at=MORNING,
                created_by=ADA,
            )
        ],
        None,
    ),
    SkillDiffBody(
        base=1,
        head=2,
        files=[
            FileDiffBody(
                path="run.sh",
                change=FileChange.CHANGED,
                base_bytes=18,
                head_bytes=21,
                executable_changed=False,
                diff="--- a/run.sh\n+++ b/run.sh\n@@ -1,2 +1,2 @@\n #!/bin/sh\n-echo hi\n+echo hello\n",
                why_no_diff=None,
            )
        ],
        truncated=False,
    ),
)

"""A skill, made up for the document."""

from uuid import UUID

from quarterdeck.skills.model import CreateSkillBody, Manifest, ManifestFile, SkillBody, SkillVersionBody
from quarterdeck.story import MORNING, SKILL, WORKSPACE

_MANIFEST = Manifest(
    files=[
        ManifestFile("SKILL.md", 812, "5c1e0a4be2f7d3968a0b4c7d1e2f3a5b6c7d8e9f0a1b2c3d4e5f60718293a4b5", False),
        ManifestFile("run.sh", 240, "a94f5374fce5edbc8e2a8697c15331677e6ebf0b1c2d3e4f5061728394a5b6c7", True),
    ],
    unpacked_bytes=1052,
    archive_sha256="9b74c9897bac770ffc029102a200c5de1f2e3d4c5b6a79880716253443526170",
)

EXAMPLES = (
    CreateSkillBody("incident-report"),
    SkillBody(SKILL, WORKSPACE, "incident-report", None, MORNING),
    SkillVersionBody(
        id=UUID("0192f0da-6f3c-7b18-8d94-4e1a7c5f2b08"),
        skill_id=SKILL,
        version=1,
        bundle_bytes=743,
        frontmatter={"name": "incident-report", "description": "Writes the weekly incident report."},
        manifest=_MANIFEST,
    ),
)

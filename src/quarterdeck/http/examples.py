"""One made-up value of each body, for the document. They tell one story: the ids in them fit together."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from msgspec import Struct
from msgspec.structs import asdict, replace

from quarterdeck.access.model import Permission
from quarterdeck.api_keys.model import ApiKeyBody, ApiKeyPage, CreateApiKeyBody, CreatedApiKeyBody
from quarterdeck.events.model import EventBody, EventPage, EventType
from quarterdeck.runs.model import (
    CancelledRunBody,
    InputEvent,
    Outcome,
    RunBody,
    RunPage,
    RunState,
    SubmitKindBody,
    Usage,
)
from quarterdeck.sessions.model import CreatedSessionTokenBody, CreateSessionBody, CreateSessionTokenBody, SessionBody
from quarterdeck.skills.model import CreateSkillBody, Manifest, ManifestFile, SkillBody, SkillVersionBody
from quarterdeck.workspaces.model import ActorBody

_WORKSPACE = UUID("0192f0c1-2a00-7c3e-9d4b-3f1a5c7e9b01")
_SESSION = UUID("0192f0c4-77d8-7a10-8e52-6b0d4f8a1c02")
_SKILL = UUID("0192f0c9-10e4-7f6b-a3c1-90e27d5b4f03")
_API_KEY = UUID("0192f0c2-5b90-7d21-b6f8-1c4e8a2d7f04")
_MORNING = datetime(2026, 3, 2, 9, 30, tzinfo=UTC)
_EVENING = datetime(2026, 3, 2, 18, 5, tzinfo=UTC)

# Cut short on purpose: whole ones would look real to people and to secret scanners.
_SECRET = "qd_live_4fT9wKx2…"
_TOKEN = "qds_live_h2Lq81Zc…"

_KEY = ApiKeyBody(
    id=_API_KEY,
    label="build server",
    prefix="qd_live_4fT9wKx2",
    permissions=[Permission.WORKSPACE_READ, Permission.SESSION_MANAGE],
    created_at=_MORNING,
    created_by=ActorBody(UUID("0192f0c0-9e11-7b44-8a07-5d2c6f3e8b05"), "Ada Byron", "ada@example.com"),
    expires_at=None,
    last_used_at=None,
    revoked_at=None,
)
_MANIFEST = Manifest(
    files=[
        ManifestFile("SKILL.md", 812, "5c1e0a4be2f7d3968a0b4c7d1e2f3a5b6c7d8e9f0a1b2c3d4e5f60718293a4b5", False),
        ManifestFile("run.sh", 240, "a94f5374fce5edbc8e2a8697c15331677e6ebf0b1c2d3e4f5061728394a5b6c7", True),
    ],
    unpacked_bytes=1052,
    archive_sha256="9b74c9897bac770ffc029102a200c5de1f2e3d4c5b6a79880716253443526170",
)

_RUN = RunBody(
    id=UUID("0192f0d3-8c5e-7e02-9f71-2a6b4d8c0e06"),
    session_id=_SESSION,
    state=RunState.RUNNING,
    attempts=1,
    steps=2,
    inputs_accepted=2,
    inputs_consumed=1,
    usage=Usage(1840, 212),
    failure=None,
    created_at=_EVENING,
    started_at=_EVENING,
    finished_at=None,
)

_ALL: tuple[Struct, ...] = (
    _RUN,
    RunPage([_RUN], None),
    CancelledRunBody(
        **asdict(replace(_RUN, state=RunState.CANCELLED, finished_at=_EVENING)),
        discarded_input_ids=[UUID("0192f0d3-a1b2-7c03-8d72-3b7c5e9d1f07")],
    ),
    InputEvent("Summarise the incidents of this week.", "input"),
    SubmitKindBody(Outcome.NEW_RUN, UUID("0192f0d3-8c5e-7e02-9f71-2a6b4d8c0e06")),
    EventPage(
        [
            EventBody(
                id=117,
                session_id=_SESSION,
                run_id=UUID("0192f0d3-8c5e-7e02-9f71-2a6b4d8c0e06"),
                type=EventType.INPUT_ACCEPTED,
                created_at=_EVENING,
                data={
                    "input_id": "0192f0d3-8c5e-7e02-9f71-1b5a3c7d9f09",
                    "text": "Summarise the incidents of this week.",
                },
            )
        ],
        None,
    ),
    # No expiry in what is sent: an example that is pasted in a year must still work.
    CreateApiKeyBody("build server", [Permission.WORKSPACE_READ, Permission.SESSION_MANAGE]),
    CreatedApiKeyBody(**asdict(_KEY), secret=_SECRET),
    replace(_KEY, last_used_at=_EVENING, revoked_at=_EVENING),
    ApiKeyPage([replace(_KEY, last_used_at=_EVENING)], None),
    CreateSessionBody("Incident review"),
    SessionBody(_SESSION, _WORKSPACE, "Incident review", None, None, [], _MORNING),
    CreateSessionTokenBody(),
    CreatedSessionTokenBody(
        id=UUID("0192f0d6-41b2-7c95-a8e3-7d0f5b2c9a07"),
        session_id=_SESSION,
        prefix="qds_live_h2Lq81Zc",
        created_at=_MORNING,
        expires_at=_EVENING,
        token=_TOKEN,
    ),
    CreateSkillBody("incident-report"),
    SkillBody(_SKILL, _WORKSPACE, "incident-report", None, _MORNING),
    SkillVersionBody(
        id=UUID("0192f0da-6f3c-7b18-8d94-4e1a7c5f2b08"),
        skill_id=_SKILL,
        version=1,
        bundle_bytes=743,
        frontmatter={"name": "incident-report", "description": "Writes the weekly incident report."},
        manifest=_MANIFEST,
    ),
)
EXAMPLES: dict[Any, Struct] = {type(example): example for example in _ALL}

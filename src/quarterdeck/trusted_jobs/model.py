"""Trusted jobs: request and response bodies."""

from typing import Annotated
from uuid import UUID

from msgspec import Meta, Struct

from quarterdeck.core.actors import ActorBody
from quarterdeck.core.example_ids import ADA, EVENING, MORNING, SKILL, TRUSTED_JOB, WORKSPACE
from quarterdeck.core.text_types import MAX_URL_CHARACTERS, Line, Moment

_Claims = Annotated[
    dict[Line, Line],
    Meta(
        min_length=1,
        max_length=16,
        description="Claims of the token, and what each has to be. `*` stands for any characters but `/` and `:`.",
    ),
]
_Issuer = Annotated[
    str, Meta(min_length=1, max_length=MAX_URL_CHARACTERS, description="As in the tokens, character by character.")
]


class CreateTrustedJobBody(Struct, frozen=True):
    name: Line
    issuer: _Issuer
    claims: _Claims


class TrustedJobBody(Struct, frozen=True):
    id: Annotated[UUID, Meta(description="Also the audience of the tokens.")]
    name: str
    issuer: str
    claims: dict[str, str]
    skill_id: Annotated[UUID, Meta(description="The skill that the job may push versions of.")]
    created_at: Moment
    created_by: Annotated[
        ActorBody, Meta(description="For whom the job acts: it is trusted as long as this person is a member.")
    ]
    last_used_at: Moment | None


class TrustedJobPage(Struct, frozen=True):
    items: list[TrustedJobBody]
    next_cursor: UUID | None


class ExchangeJobTokenBody(Struct, frozen=True):
    trusted_job_id: UUID
    token: Annotated[
        str, Meta(min_length=1, max_length=65_536, description="A JWT of the issuer, whose audience is this ID.")
    ]


class JobKeyBody(Struct, frozen=True):
    secret: Annotated[str, Meta(description="Send it as `Authorization: Bearer <secret>`.")]
    expires_at: Moment
    workspace_id: UUID
    skill_id: UUID


_CLAIMS = {"repository": "acme/skills", "repository_owner_id": "4711", "ref": "refs/heads/main"}
_JOB = TrustedJobBody(
    id=TRUSTED_JOB,
    name="skills on main",
    issuer="https://token.actions.githubusercontent.com",
    claims=_CLAIMS,
    skill_id=SKILL,
    created_at=MORNING,
    created_by=ADA,
    last_used_at=EVENING,
)

EXAMPLES = (
    CreateTrustedJobBody(_JOB.name, _JOB.issuer, _CLAIMS),
    _JOB,
    TrustedJobPage([_JOB], None),
    ExchangeJobTokenBody(TRUSTED_JOB, "eyJhbGciOi…"),
    JobKeyBody("qdj_live_4fT9wKx2…", EVENING, WORKSPACE, SKILL),
)

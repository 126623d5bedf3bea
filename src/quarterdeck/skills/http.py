"""Skills over HTTP."""

from quarterdeck.access.model import Permission
from quarterdeck.http.incoming import Incoming
from quarterdeck.http.operation import Payload, operation
from quarterdeck.idempotency.service import Answer
from quarterdeck.parts import Parts
from quarterdeck.skills import service
from quarterdeck.skills.model import CreateSkillBody, SkillBody, SkillVersionBody


@operation(
    summary="Create a skill",
    description="Its content comes with its versions.",
    permission=Permission.SKILL_MANAGE,
    payload=CreateSkillBody,
    success_status=201,
    success_type=SkillBody,
    success="The new skill.",
    idempotent=True,
)
async def create_skill(parts: Parts, incoming: Incoming) -> Answer:
    return await service.create_skill(parts, await incoming.call(CreateSkillBody))


@operation(
    summary="Push a new version of a skill",
    description="A gzipped tar of the bundle's folder, SKILL.md at its root. Versions count from 1 without gaps.",
    permission=Permission.SKILL_MANAGE,
    payload=Payload.GZIP,
    success_status=201,
    success_type=SkillVersionBody,
    success="The new version.",
    idempotent=True,
    conditional=True,
)
async def push_skill_version(parts: Parts, incoming: Incoming) -> Answer:
    skill_id = incoming.path_id("skill_id")
    call = incoming.call_without_body(gzip=True)
    limit_bytes = parts.settings.bundle.request_bytes
    return await service.push_skill_version(parts, call, skill_id, incoming.archive(limit_bytes))

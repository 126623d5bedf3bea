"""Skills over HTTP."""

from quarterdeck.http.incoming import Incoming
from quarterdeck.idempotency.service import Answer
from quarterdeck.parts import Parts
from quarterdeck.skills import service
from quarterdeck.skills.model import CreateSkillBody


async def create_skill(parts: Parts, incoming: Incoming) -> Answer:
    return await service.create_skill(parts, await incoming.call(CreateSkillBody))


async def push_skill_version(parts: Parts, incoming: Incoming) -> Answer:
    skill_id = incoming.path_id("skill_id")
    call = incoming.call_without_body(gzip=True)
    limit_bytes = parts.settings.bundle.request_bytes
    return await service.push_skill_version(parts, call, skill_id, incoming.archive(limit_bytes))

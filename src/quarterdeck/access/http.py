"""GET /v1/whoami."""

from quarterdeck.access import service
from quarterdeck.access.model import CallerBody
from quarterdeck.http.incoming import Incoming
from quarterdeck.http.operation import operation
from quarterdeck.parts import Parts


@operation(
    summary="Show who the caller is",
    description="The credential that the call carries: what it may do, where, until when, and who made it. Any key or "
    "session token may ask.",
    permission=None,
    success_type=CallerBody,
    success="The credential, without its secret.",
    session_token=True,
)
async def whoami(parts: Parts, incoming: Incoming) -> CallerBody:
    return await service.whoami(parts, incoming.call_without_body())

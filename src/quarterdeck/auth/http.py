"""whoami over HTTP."""

from quarterdeck.auth import service
from quarterdeck.auth.access import Access
from quarterdeck.auth.model import CallerBody
from quarterdeck.http.operation import operation
from quarterdeck.http.request import Request


@operation(
    summary="Get the caller",
    description="The credential of the request: its permissions, workspace, expiration and creator. Available to "
    "every key and session token.",
    permission=None,
    success_type=CallerBody,
    success="The credential, without its secret.",
    session_token=True,
)
async def whoami(request: Request, access: Access) -> CallerBody:
    return await service.whoami(access, request.call_without_body())

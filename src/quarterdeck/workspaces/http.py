"""The workspace and its members over HTTP, read-only: only the operator changes them, with `qd admin`."""

from quarterdeck.auth.access import Access
from quarterdeck.core.actors import Permission
from quarterdeck.http.operation import operation
from quarterdeck.http.request import Request
from quarterdeck.workspaces import service
from quarterdeck.workspaces.model import MemberPage, WorkspaceBody


@operation(
    summary="Get the workspace",
    description="The one that the key belongs to.",
    permission=Permission.WORKSPACE_READ,
    success_type=WorkspaceBody,
    success="The workspace.",
)
async def get_workspace(request: Request, access: Access) -> WorkspaceBody:
    return await service.get_workspace(access, request.call_without_body())


@operation(
    summary="List the members of the workspace",
    description="One page per call, in the order in which the server first heard of them, latest first unless "
    "order=asc. Those who have left are listed too.",
    permission=Permission.WORKSPACE_READ,
    success_type=MemberPage,
    success="One page. next_cursor is null on the last.",
    paged=True,
)
async def list_members(request: Request, access: Access) -> MemberPage:
    page = request.page_request()
    return await service.list_members(access, request.call_without_body(), page)

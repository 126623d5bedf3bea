"""The workspace and its members over HTTP, read-only: only the operator changes them, with `qd admin`."""

from quarterdeck.auth.access import Access
from quarterdeck.core.actors import Permission
from quarterdeck.http.operation import operation
from quarterdeck.http.request import Request
from quarterdeck.workspaces import service
from quarterdeck.workspaces.model import MemberPage, WorkspaceBody


@operation(
    summary="Get the workspace",
    description="The workspace of the key.",
    permission=Permission.WORKSPACE_READ,
    success_type=WorkspaceBody,
    success="The workspace.",
)
async def get_workspace(request: Request, access: Access) -> WorkspaceBody:
    return await service.get_workspace(access, request.call_without_body())


@operation(
    summary="List the members of the workspace",
    description="One page per call, newest users first unless order=asc. Includes former members.",
    permission=Permission.WORKSPACE_READ,
    success_type=MemberPage,
    success="One page. next_cursor is null on the last page.",
    paged=True,
)
async def list_members(request: Request, access: Access) -> MemberPage:
    page = request.page_request()
    return await service.list_members(access, request.call_without_body(), page)

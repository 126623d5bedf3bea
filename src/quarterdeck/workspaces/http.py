"""The workspace and its members over HTTP. Callers change limits; the operator changes the rest, with `qd admin`."""

from quarterdeck.auth.access import Access
from quarterdeck.changes.perform import Changes
from quarterdeck.core.actors import Permission
from quarterdeck.core.call import Answer
from quarterdeck.http.operation import operation
from quarterdeck.http.request import Request
from quarterdeck.workspaces import service
from quarterdeck.workspaces.model import ChangeWorkspaceBody, MemberPage, WorkspaceBody


@operation(
    summary="Get the workspace",
    description="The workspace of the key.",
    permission=Permission.WORKSPACE_READ,
    success_type=WorkspaceBody,
    success="The workspace.",
    etag=True,
)
async def get_workspace(request: Request, access: Access) -> WorkspaceBody:
    return await service.get_workspace(access, request.call_without_body())


@operation(
    summary="Change the workspace",
    description="Sets limits of cost and tokens per day (UTC). They are checked before each step of a run.",
    permission=Permission.KEY_MANAGE,
    reads=True,
    payload=ChangeWorkspaceBody,
    success_type=WorkspaceBody,
    success="The updated workspace.",
    etag=True,
    conditional=True,
    idempotent=True,
)
async def change_workspace(request: Request, changes: Changes) -> Answer:
    return await service.change_workspace(changes, await request.call(ChangeWorkspaceBody))


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

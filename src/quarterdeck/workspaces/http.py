"""The workspace and its members. They are changed by the operator only: `qd admin`."""

from quarterdeck.access.model import Permission
from quarterdeck.http.incoming import Incoming
from quarterdeck.http.operation import operation
from quarterdeck.parts import Parts
from quarterdeck.workspaces import service
from quarterdeck.workspaces.model import MemberPage, WorkspaceBody


@operation(
    summary="Get the workspace",
    description="The one that the key belongs to.",
    permission=Permission.WORKSPACE_READ,
    success_type=WorkspaceBody,
    success="The workspace.",
)
async def get_workspace(parts: Parts, incoming: Incoming) -> WorkspaceBody:
    return await service.get_workspace(parts, incoming.call_without_body())


@operation(
    summary="List the members of the workspace",
    description="One page per call, in the order in which the server first heard of them, latest first unless "
    "order=asc. Those who have left are listed too.",
    permission=Permission.WORKSPACE_READ,
    success_type=MemberPage,
    success="One page. next_cursor is null on the last.",
    paged=True,
)
async def list_members(parts: Parts, incoming: Incoming) -> MemberPage:
    request = incoming.page_request()
    return await service.list_members(parts, incoming.call_without_body(), request)

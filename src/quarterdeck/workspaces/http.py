"""The workspace and its members over HTTP. Callers change limits and retention; the operator changes the rest, with
`qd admin`."""

from quarterdeck.auth.access import Access
from quarterdeck.changes.perform import Changes
from quarterdeck.core import errors
from quarterdeck.core.actors import Permission
from quarterdeck.core.call import Answer
from quarterdeck.core.retention import RetentionDays
from quarterdeck.http.operation import Refusal, operation
from quarterdeck.http.request import Request
from quarterdeck.workspaces import rules, service
from quarterdeck.workspaces.model import ChangeWorkspaceBody, MemberPage, WorkspaceBody


@operation(
    summary="Get the workspace",
    description="The workspace of the key.",
    permission=Permission.WORKSPACE_READ,
    success_type=WorkspaceBody,
    success="The workspace.",
    etag=True,
)
async def get_workspace(request: Request, access: Access, defaults: RetentionDays) -> WorkspaceBody:
    return await service.get_workspace(access, defaults, request.call_without_body())


@operation(
    summary="Change the workspace",
    description="Sets limits of cost and tokens per day (UTC), which are checked before each step of a run, and for "
    "how many days data is kept. Expired data is deleted within about an hour and cannot be restored. To change "
    "`run_days`, `event_days` or `file_days`, the key needs `session.manage` too.",
    permission=Permission.KEY_MANAGE,
    reads=True,
    payload=ChangeWorkspaceBody,
    success_type=WorkspaceBody,
    success="The updated workspace.",
    etag=True,
    conditional=True,
    idempotent=True,
    refusals=(
        Refusal(
            "may_not_expire",
            errors.exceeds_caller(rules.MAY_NOT_EXPIRE),
            "The request changes the retention of runs, events or files, and the key lacks `session.manage`.",
            "Use a key with both permissions, or leave these three out.",
        ),
    ),
)
async def change_workspace(request: Request, changes: Changes, defaults: RetentionDays) -> Answer:
    return await service.change_workspace(changes, defaults, await request.call(ChangeWorkspaceBody))


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

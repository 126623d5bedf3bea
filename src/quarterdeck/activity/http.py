"""Activity figures over HTTP."""

from quarterdeck.activity import service
from quarterdeck.activity.model import ActivityBody
from quarterdeck.auth.access import Access
from quarterdeck.core.actors import Permission
from quarterdeck.http.operation import Query, operation
from quarterdeck.http.request import Request

_DEFAULT_MINUTES = 60
_MIN_MINUTES, _MAX_MINUTES = 5, 7 * 24 * 60


@operation(
    summary="Count what went on in the workspace",
    description="Figures for charts: runs by state, inputs and the time that runs waited for a worker, in at most 60 "
    "stretches of equal length up to now. What was deleted is not counted.",
    permission=Permission.WORKSPACE_READ,
    success_type=ActivityBody,
    success="The figures, oldest first. Every stretch is there, also one in which nothing went on.",
    queries=(
        Query(
            "minutes",
            {"type": "integer", "minimum": _MIN_MINUTES, "maximum": _MAX_MINUTES, "default": _DEFAULT_MINUTES},
            "How far to look back.",
        ),
    ),
)
async def get_activity(request: Request, access: Access) -> ActivityBody:
    minutes = request.query_number("minutes", least=_MIN_MINUTES, most=_MAX_MINUTES) or _DEFAULT_MINUTES
    return await service.get_activity(access, request.call_without_body(), minutes)

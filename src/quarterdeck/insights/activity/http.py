"""Activity figures over HTTP."""

from quarterdeck.auth.access import Access
from quarterdeck.core.actors import Permission
from quarterdeck.http.operation import Query, operation
from quarterdeck.http.request import Request
from quarterdeck.insights.activity import service
from quarterdeck.insights.activity.model import ActivityBody

_DEFAULT_MINUTES = 60
_MIN_MINUTES, _MAX_MINUTES = 5, 7 * 24 * 60


@operation(
    summary="Get the activity of the workspace",
    description="Statistics for charts: runs by state, inputs, and how long runs waited for a worker, in up to 60 "
    "intervals of equal length until now. Deleted objects are not counted.",
    permission=Permission.WORKSPACE_READ,
    success_type=ActivityBody,
    success="The statistics, oldest interval first. Intervals without activity are included.",
    queries=(
        Query(
            "minutes",
            {"type": "integer", "minimum": _MIN_MINUTES, "maximum": _MAX_MINUTES, "default": _DEFAULT_MINUTES},
            "Length of the period in minutes.",
        ),
    ),
)
async def get_activity(request: Request, access: Access) -> ActivityBody:
    minutes = request.query_number("minutes", least=_MIN_MINUTES, most=_MAX_MINUTES) or _DEFAULT_MINUTES
    return await service.get_activity(access, request.call_without_body(), minutes)

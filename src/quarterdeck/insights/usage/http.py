"""Usage over HTTP."""

from quarterdeck.auth.access import Access
from quarterdeck.core.actors import Permission
from quarterdeck.http.operation import Query, operation
from quarterdeck.http.request import Request
from quarterdeck.http.schemas import DATE
from quarterdeck.insights.usage import service
from quarterdeck.insights.usage.model import MAX_ITEMS, UsageBody, UsageGroup

_DEFAULT_DAYS = 30
_MAX_DAYS = 366


@operation(
    summary="Get the usage of the workspace",
    description="Tokens and cost of whole days (UTC), from the first step that was stored with release 0.2.0 on. Runs "
    "of deleted sessions are included.",
    permission=Permission.WORKSPACE_READ,
    success_type=UsageBody,
    success=f"Days newest first, other groups with the highest cost first: at most {MAX_ITEMS:,}.",
    queries=(
        Query(
            "group_by",
            {"type": "string", "enum": list(UsageGroup), "default": UsageGroup.DAY},
            "What an item stands for.",
        ),
        Query(
            "from",
            DATE,
            f"First day. By default {_DEFAULT_DAYS} days before `to`, at most {_MAX_DAYS}. A time counts as its day.",
            example="2026-03-01",
        ),
        Query(
            "to",
            DATE,
            "The day after the last one. By default tomorrow. A time after midnight counts as the next day.",
            example="2026-04-01",
        ),
    ),
)
async def get_usage(request: Request, access: Access) -> UsageBody:
    group_by = request.query_choice("group_by", UsageGroup) or UsageGroup.DAY
    start, end = request.query_days(_DEFAULT_DAYS, _MAX_DAYS)
    return await service.get_usage(access, request.call_without_body(), group_by, start, end)

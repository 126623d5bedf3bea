"""Pages of API keys, over HTTP."""

from bench import wrk
from bench.case import BenchError, Taken
from bench.server import Server

_CONNECTIONS = 16
# The last of the page before the last.
_BEFORE_LAST_PAGE = "SELECT id FROM api_keys WHERE workspace_id = %s ORDER BY id OFFSET %s LIMIT 1"


async def first_page(server: Server, limit: int, seconds: int) -> Taken:
    return await _pages(server, f"/v1/api-keys?limit={limit}", limit, seconds)


async def last_page(server: Server, limit: int, seconds: int) -> Taken:
    ((cursor,),) = await server.statement(_BEFORE_LAST_PAGE, server.workspace_id, limit)
    return await _pages(server, f"/v1/api-keys?limit={limit}&after={cursor}", limit, seconds)


async def _pages(server: Server, path: str, limit: int, seconds: int) -> Taken:
    async with server.caller() as caller:
        found = len((await caller.get(path))["items"])
    if found != limit:
        raise BenchError(f"a page of {limit} keys has {found}")
    return Taken(await page_rate(server, server.port, path, seconds))


async def page_rate(server: Server, port: int, path: str, seconds: int) -> float:
    """Of the server's own port, or of one beside it that takes the same requests."""
    report = await wrk.load(
        port,
        "get",
        connections=_CONNECTIONS,
        seconds=seconds,
        path=path,
        key=server.key,
        workspace=server.workspace_id,
    )
    return report.per_second

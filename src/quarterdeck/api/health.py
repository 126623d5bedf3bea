"""Health checks: /healthz says that the process runs, /readyz that it can serve requests."""

from starlette.responses import Response
from starlette.types import Receive, Scope

from quarterdeck.api.endpoint import Respond
from quarterdeck.core import errors
from quarterdeck.db.database import Database
from quarterdeck.db.migrate import is_current
from quarterdeck.http.responses import json_response

_OK = b'{"status":"ok"}'


async def healthz(_: Scope, __: Receive) -> Response:
    return json_response(_OK, 200)


def readyz(database: Database) -> Respond:
    async def respond(_: Scope, __: Receive) -> Response:
        if not await database.read(is_current):
            raise errors.unavailable("The database schema is outdated. Run `qd migrate`.")
        return json_response(_OK, 200)

    return respond

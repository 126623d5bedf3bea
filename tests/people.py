"""People who sign in, as a browser does it: with a cookie, the header of our clients, and an Origin."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Self
from uuid import uuid4

import httpx

from quarterdeck.core.actors import Role
from quarterdeck.core.settings import KeySettings, SignInSettings
from quarterdeck.people import invitations
from tests.world import World

PASSWORD = "correct horse battery"
CLIENT = {"Quarterdeck-Client": "quarterdeck-console/0.2.0"}


class Browser:
    """A browser profile with the console of the server."""

    def __init__(self, world: World) -> None:
        self._http = world.http
        url = world.http.base_url
        self.origin = f"{url.scheme}://{url.netloc.decode()}"
        # The credential in the cookie. None: nobody has signed in.
        self.secret: str | None = None
        self.workspace_id: str | None = None

    async def request(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        sent = {**CLIENT, "Origin": self.origin}
        sent |= {} if self.workspace_id is None else {"Service-Workspace": self.workspace_id}
        sent |= {} if self.secret is None else {"Cookie": f"quarterdeck={self.secret}"}
        answer = await self._http.request(method, path, json=body, headers=sent | headers)
        # The client is shared with others, who must not send this cookie.
        self._http.cookies.clear()
        if "set-cookie" in answer.headers:
            self.secret = answer.headers["set-cookie"].partition("=")[2].partition(";")[0] or None
        return answer

    async def get(self, path: str) -> httpx.Response:
        return await self.request("GET", path)

    async def post(self, path: str, body: Any = None) -> httpx.Response:
        return await self.request("POST", path, body)

    async def sign_in(self, email: str, password: str = PASSWORD) -> httpx.Response:
        return await self.post("/v1/sign-in", {"email": email, "password": password})


class Person(Browser):
    """A member who has signed in."""

    def __init__(self, world: World, email: str) -> None:
        super().__init__(world)
        self.email = email

    @classmethod
    async def join(cls, world: World, role: Role) -> Self:
        """By an invitation of the operator."""
        person = cls(world, new_email())
        token = await invite(world, person.email, role)
        answer = await person.post("/v1/invitations/accept", {"token": token, "password": PASSWORD})
        assert answer.status_code == 200, answer.text
        person.workspace_id = str(world.workspace_id)
        return person

    async def id(self) -> str:
        found: str = (await self.get("/v1/profile")).json()["user"]["user_id"]
        return found


async def invite(world: World, email: str, role: Role) -> str:
    """The token of an invitation."""
    async with await world.connect() as connection:
        created = await invitations.invite_by_operator(
            connection, KeySettings(environment="test"), SignInSettings(), world.workspace_id, email, role
        )
    assert isinstance(created.token, str)
    return created.token


async def answer_after(
    world: World, asked: Coroutine[Any, Any, httpx.Response], change: str, *values: object
) -> httpx.Response:
    """The response to a request that waits for the lock of the workspace while the change is made and committed."""
    waiting = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    async with await world.connect() as connection, connection.transaction():
        await connection.execute("SELECT FROM workspaces WHERE id = %s FOR NO KEY UPDATE", (world.workspace_id,))
        asking = asyncio.create_task(asked)
        while not await world.fetch(f"{waiting} AND query LIKE '%%workspaces%%'"):
            assert not asking.done(), asking.result().text
            await asyncio.sleep(0.05)
        await connection.execute(change.encode(), values)
    return await asking


def new_email() -> str:
    return f"{uuid4().hex}@example.com"


async def new_device(person: Person) -> str:
    """The credential of a command line that the person has approved."""
    codes = (await person.post("/v1/device-codes", {"device_name": "qd on workstation"})).json()
    await person.post("/v1/device-codes/answer", {"user_code": codes["user_code"], "approve": True})
    redeemed = await person.post("/v1/device-codes/redeem", {"device_code": codes["device_code"]})
    secret: str = redeemed.json()["secret"]
    return secret


async def join(person: Person, world: World, role: Role) -> None:
    """Another workspace."""
    token = await invite(world, person.email, role)
    answer = await person.post("/v1/workspace/join", {"token": token})
    assert answer.status_code == 200, answer.text

"""What a system under comparison is: how it starts, how a person's turn is sent to it, what it then shows of it."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import ClassVar, Self
from uuid import uuid4

import httpx
import psycopg
from msgspec import Struct
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from bench.peers.processes import Command, Processes, free_port

APPS = Path(__file__).parent / "apps"
_START_SECONDS = 60.0
_ANSWER_SECONDS = 30.0


class Environment(Struct, frozen=True):
    """What is installed for it: `requirements/<name>.txt`, and `requirements/<name>.npm.json` if there is one."""

    name: str
    # The one of those packages that is compared.
    package: str
    python: tuple[int, int] = (3, 11)


class Installation(Struct, frozen=True):
    """Where one start of a system happens. Everything in it is new."""

    folder: Path
    postgres_url: str
    # The folder that its environment was installed to.
    installed: Path
    # Host and port of the model's stand-in. None: whoever is asked answers a fixed text at once.
    model: str | None


class Request(Struct, frozen=True):
    path: str
    body: bytes
    media_type: str = "application/json"
    headers: Mapping[str, str] = {}


class System(ABC):
    """One start of one system. A subclass a system, a file a subclass."""

    name: ClassVar[str]
    # The request that is compared, the setting that it is compared in, and where it is not the same as the others.
    request: ClassVar[str]
    setting: ClassVar[str]
    differs: ClassVar[str]
    # None: comes with this project.
    environment: ClassVar[Environment | None]
    health: ClassVar[str]

    def __init__(self, installation: Installation) -> None:
        self.installation = installation
        self.port = free_port()
        self.client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.port}", timeout=_ANSWER_SECONDS)
        self._processes = Processes(installation.folder, ())

    @abstractmethod
    async def prepare(self) -> None:
        """Before its first start: databases, files, ports."""

    @abstractmethod
    def commands(self) -> Sequence[Command]: ...

    @abstractmethod
    async def new_sessions(self, count: int) -> list[str]: ...

    @abstractmethod
    def turn(self, session: str, text: str) -> Request: ...

    @abstractmethod
    def said(self, answer: httpx.Response) -> str:
        """A word of the answer that tells what became of the turn."""

    @abstractmethod
    async def record(self, session: str) -> str:
        """The conversation as the system shows it, in any form that has the texts of the turns in it."""

    async def __aenter__(self) -> Self:
        try:
            await self.prepare()
            self._processes = Processes(self.installation.folder, self.commands())
            await self.start()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._processes.kill()
        await self.client.aclose()

    async def start(self) -> None:
        self._processes.start()
        deadline = monotonic() + _START_SECONDS
        while not await self._is_up():
            self._processes.check()
            if monotonic() > deadline:
                words = self._processes.last_words()
                raise RuntimeError(f"no answer within {_START_SECONDS:g} s of its start. {words}")
            await asyncio.sleep(0.1)

    def kill(self) -> None:
        self._processes.kill()

    @property
    def pids(self) -> list[int]:
        return self._processes.pids

    async def send(self, session: str, text: str, key: str | None = None) -> httpx.Response:
        request = self.turn(session, text)
        headers = {"content-type": request.media_type, **request.headers}
        if key is not None:
            headers["idempotency-key"] = key
        return await self.client.post(request.path, content=request.body, headers=headers)

    async def get(self, path: str, **headers: str) -> httpx.Response:
        answer = await self.client.get(path, headers=headers)
        answer.raise_for_status()
        return answer

    async def _is_up(self) -> bool:
        try:
            return (await self.client.get(self.health)).is_success
        except httpx.TransportError:
            return False


def new_database(postgres_url: str, scheme: str = "postgresql") -> str:
    """Its address, with the scheme that its user's driver goes by."""
    name = f"peer_{uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    parts = {key: str(value) for key, value in conninfo_to_dict(postgres_url).items()}
    query = httpx.QueryParams({key: value for key, value in parts.items() if key not in ("user", "dbname")})
    return f"{scheme}://{parts['user']}@/{name}?{query}"

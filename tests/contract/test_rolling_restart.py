"""API processes, replaced one after the other: no request fails, and none is repeated by its client. Behind a load
balancer as in docs/run/restarts.md, and without one."""

import asyncio
import os
import shutil
import signal
import threading
from collections import Counter
from contextlib import ExitStack
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Self
from uuid import uuid4

import httpx
import psutil
import pytest

from quarterdeck.client import AsyncClient
from tests.contract.test_proxies import NGINX_CONF, running
from tests.pages import blocks_of
from tests.processes import serving_pids, stop, until
from tests.world import PATIENT, Server, World, free_port, serving

pytestmark = pytest.mark.long

CLIENTS = 6
ROUNDS = 1
# Requests between two restarts, so that both processes are in use.
REQUESTS = 100


def nginx(folder: Path, port: int, api_ports: list[int]) -> list[str]:
    (proxy,) = blocks_of("docs/run/proxies.md", "nginx")
    (balanced,) = blocks_of("docs/run/restarts.md", "nginx-upstream")
    before, _, after = proxy.text.partition("upstream quarterdeck {")
    text = before + balanced.text + after.partition("}\n")[2]
    for documented, ours in zip(("10.0.0.11:8700", "10.0.0.12:8700"), api_ports, strict=True):
        assert documented in text
        text = text.replace(documented, f"127.0.0.1:{ours}")
    (folder / "quarterdeck.conf").write_text(text.replace("8080", str(port)))
    (folder / "nginx.conf").write_text(NGINX_CONF.format(folder=folder))
    return ["nginx", "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(folder / "nginx.conf")]


class Load:
    def __init__(self, world: World, pause_seconds: float = 0) -> None:
        self._world = world
        self._pause_seconds = pause_seconds
        self.answers: Counter[int] = Counter()
        self.stopping = False

    async def run(self) -> None:
        session_id = await self._world.new_session()
        while not self.stopping:
            text = uuid4().hex
            for answer in (
                await self._world.submit(session_id, text, idempotency_key=text),
                await self._world.get(f"/v1/sessions/{session_id}"),
            ):
                self.answers[answer.status_code] += 1
            await asyncio.sleep(self._pause_seconds)

    async def run_directly(self, client: AsyncClient) -> None:
        """With our client, which repeats a request whose connection was closed. It raises whatever else happens."""
        session_id = await self._world.new_session()
        while not self.stopping:
            await client.submit_input(session_id, text=uuid4().hex)
            await client.get_session(session_id)
            await asyncio.sleep(self._pause_seconds)

    async def go_on(self) -> None:
        """Until many more requests are answered."""
        target = self.answers.total() + REQUESTS
        assert await until(lambda: self.answers.total() >= target)


@pytest.fixture
def needs_nginx() -> None:
    if shutil.which("nginx", path="/usr/local/bin:/usr/bin:/usr/sbin") is None:
        pytest.skip("nginx is not installed: apt-get install nginx")


@pytest.mark.usefixtures("needs_nginx")
async def test_no_request_fails(database_url: str, tmp_path: Path) -> None:
    port, api_ports = free_port(), [free_port(), free_port()]
    stacks = {api_port: ExitStack() for api_port in api_ports}

    def start(api_port: int) -> None:
        folder = tmp_path / str(api_port)
        folder.mkdir(exist_ok=True)
        stacks[api_port].enter_context(serving(database_url, folder, SERVER_PORT=api_port, **PATIENT))

    with ExitStack() as stack:
        for api_port in api_ports:
            stack.callback(stacks[api_port].close)
            start(api_port)
        stack.enter_context(running(nginx(tmp_path, port, api_ports), tmp_path, port))
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=120) as http:
            load = Load(await World.create(database_url, http))
            clients = [asyncio.create_task(load.run()) for _ in range(CLIENTS)]
            for api_port in api_ports * ROUNDS:
                await load.go_on()
                await asyncio.to_thread(stacks[api_port].close)
                await load.go_on()
                await asyncio.to_thread(start, api_port)
            await load.go_on()
            load.stopping = True
            await asyncio.gather(*clients)
    assert load.answers.keys() == {200}, (load.answers, (tmp_path / "error.log").read_text()[-2000:])


@pytest.mark.usefixtures("needs_nginx")
async def test_no_request_fails_during_a_reload(database_url: str, tmp_path: Path) -> None:
    """`systemctl reload`: one `qd api` replaces its processes. Through a balancer, and with our client without one."""
    port = free_port()
    with serving(database_url, tmp_path, SERVER_PROCESSES=2, **PATIENT) as server, ExitStack() as stack:
        stack.enter_context(running(nginx(tmp_path, port, [server.port, server.port]), tmp_path, port))
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=120) as http:
            world = await World.create(database_url, http)
            # Processes are replaced seconds apart: full load all the time would only cost.
            load = Load(world, pause_seconds=0.02)
            async with AsyncClient(server.url, world.key) as client:
                clients = [asyncio.create_task(load.run()) for _ in range(CLIENTS)]
                clients += [asyncio.create_task(load.run_directly(client)) for _ in range(CLIENTS)]
                await load.go_on()
                processes = [child.pid for child in psutil.Process(server.pid).children()]
                assert len(processes) == 2
                os.kill(server.pid, signal.SIGHUP)
                assert await until(lambda: not any(map(psutil.pid_exists, processes)))
                await load.go_on()
                load.stopping = True
                await asyncio.gather(*clients)
    assert load.answers.keys() == {200}, (load.answers, (tmp_path / "error.log").read_text()[-2000:])


class PlainClients:
    """Clients that repeat nothing: some reuse their connection, the others open one for each request."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.answers: Counter[object] = Counter()
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(number % 2 == 0,)) for number in range(CLIENTS)]

    def _ask(self, is_kept_alive: bool) -> None:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=120)
        while not self._stopping.is_set():
            try:
                connection.request("GET", "/healthz")
                answer = connection.getresponse()
                answer.read()
                self.answers[answer.status] += 1
            except (OSError, HTTPException) as fault:
                self.answers[repr(fault)] += 1
                connection.close()
            if not is_kept_alive:
                connection.close()
        connection.close()

    async def go_on(self) -> None:
        target = self.answers.total() + REQUESTS
        assert await until(lambda: self.answers.total() >= target)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()


async def replace_process(server: Server) -> None:
    (process,) = serving_pids(server)
    stop(server, signal.SIGHUP)
    assert await until(lambda: not psutil.pid_exists(process))


async def test_a_plain_client_loses_no_request_during_reloads(database_url: str, tmp_path: Path) -> None:
    with serving(database_url, tmp_path, **PATIENT) as server, PlainClients(server.port) as clients:
        for _ in range(2):
            await replace_process(server)
            await clients.go_on()
    assert clients.answers.keys() == {200}, clients.answers
    assert "[WARNING]" not in server.log.read_text()

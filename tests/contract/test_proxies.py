"""The proxy examples of docs/run/proxies.md, word for word but for ports and timeouts, with real proxies."""

import re
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from quarterdeck.core.settings import BundleSettings, FileSettings
from tests.pages import Block, blocks_of
from tests.processes import until
from tests.raw_http import PATIENCE_SECONDS, Wire, request
from tests.sse import reading
from tests.world import Server, World, bundle, free_port, serving

pytestmark = pytest.mark.long

# What Debian's own nginx.conf has around the files in conf.d/, without a daemon and without files of the system.
NGINX_CONF = """
daemon off;
# Only if root runs the tests: its folder is closed to others, and bodies are stored in it.
user root;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/quarterdeck.conf;
}}
"""


def example(block: Block, api_port: int, port: int) -> str:
    text = block.text
    for documented, ours in (
        ("127.0.0.1:8700", f"127.0.0.1:{api_port}"),
        ("8080", str(port)),
        # A test cannot wait that long, and reads its own responses quicker.
        ("send_timeout 30s", "send_timeout 5s"),
        ("write 10m", "write 20s"),
    ):
        text = text.replace(documented, ours)
    return text


def nginx(folder: Path, api_port: int, port: int) -> list[str]:
    (block,) = blocks_of("docs/run/proxies.md", "nginx")
    (folder / "quarterdeck.conf").write_text(example(block, api_port, port))
    (folder / "nginx.conf").write_text(NGINX_CONF.format(folder=folder))
    return ["nginx", "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(folder / "nginx.conf")]


def caddy(folder: Path, api_port: int, port: int) -> list[str]:
    # Its administration port would be shared by all that run on this machine.
    (block,) = blocks_of("docs/run/proxies.md", "caddyfile")
    config = example(block, api_port, port).replace("{\n", "{\n\tadmin off\n", 1)
    (folder / "Caddyfile").write_text(config)
    return ["caddy", "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]


@contextmanager
def running(command: list[str], folder: Path, port: int) -> Iterator[None]:
    environment = {"HOME": str(folder), "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}
    with (folder / "proxy.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            assert process.poll() is None, (folder / "proxy.log").read_text()
            assert time.monotonic() < deadline
            try:
                httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=5)
                break
            except httpx.TransportError:
                time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)


@pytest.fixture(scope="module", params=[nginx, caddy], ids=["nginx", "caddy"])
def proxied(
    request: pytest.FixtureRequest, server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """The port and the address are those of the proxy."""
    configure: Callable[[Path, int, int], list[str]] = request.param
    name = configure.__name__
    if shutil.which(name, path="/usr/local/bin:/usr/bin:/usr/sbin") is None:
        pytest.skip(f"{name} is not installed: apt-get install {name}")
    folder, port = tmp_path_factory.mktemp(name), free_port()
    trusted = {"HTTP_TRUSTED_PROXIES": "127.0.0.1"}
    with (
        serving(server.database_url, tmp_path_factory.mktemp("api"), **trusted) as api,
        running(configure(folder, api.port, port), folder, port),
    ):
        yield Server(f"http://127.0.0.1:{port}", port, api.pid, api.database_url, api.log, api.data_dir)


@pytest.fixture
async def world(proxied: Server) -> AsyncIterator[World]:
    async with httpx.AsyncClient(base_url=proxied.url, timeout=30) as http:
        yield await World.create(proxied.database_url, http)


async def test_submit_and_upload(world: World) -> None:
    assert (await world.submit(await world.new_session())).json()["outcome"] == "new_run"
    large = bundle(large="x" * 5_000_000)
    assert (await world.push(await world.new_skill(), large)).status_code == 201
    # Above the largest archive: files may be larger.
    assert (await world.upload("large.bin", bytes(BundleSettings().request_bytes + 2**21))).status_code == 201
    assert (await world.get("/nowhere")).json()["error"]["code"] == "not_found"


def test_nginx_leaves_refusing_to_the_api() -> None:
    (block,) = blocks_of("docs/run/proxies.md", "nginx")
    (limit_mib,) = re.findall(r"client_max_body_size (\d+)m;", block.text)
    assert int(limit_mib) * 2**20 > max(FileSettings().request_bytes, BundleSettings().request_bytes)


async def test_events_arrive_as_they_happen(world: World, proxied: Server) -> None:
    session_id = await world.new_session()
    async with reading(proxied.url, session_id, world.key) as reader:
        await reader.next()
        for _ in range(3):
            await world.submit(session_id)
            assert len(await reader.stored(1)) == 1


async def test_the_audit_log_has_the_address_of_the_client(world: World, proxied: Server) -> None:
    """Not that of the proxy, and not the one that the client claims."""
    transport = httpx.AsyncHTTPTransport(local_address="127.0.0.2")
    headers = world.headers() | {"X-Forwarded-For": "192.0.2.7"}
    async with httpx.AsyncClient(base_url=proxied.url, transport=transport, headers=headers, timeout=30) as http:
        assert (await http.post("/v1/sessions", json={})).status_code == 201
    ((address,),) = await world.fetch(
        "SELECT address FROM audit_events WHERE workspace_id = %s ORDER BY id DESC LIMIT 1", world.workspace_id
    )
    assert address == "127.0.0.2"


def test_a_client_that_ends_its_sending_side_is_answered(proxied: Server) -> None:
    with Wire(proxied.port) as wire:
        wire.send(request("GET", "/healthz", "Connection: close"))
        wire.end_sending()
        assert wire.answer().status == 200


async def test_a_client_that_never_reads_is_cut(proxied: Server) -> None:
    """With the timeout shortened: see `example`."""
    with Wire(proxied.port, receive_buffer_bytes=4096) as wire:
        wire.send(request("GET", "/openapi.json") * 40)
        assert await until(lambda: established(proxied.port) == 0, seconds=60)


def established(port: int) -> int:
    ours = [one.laddr for one in psutil.net_connections("tcp") if one.status == psutil.CONN_ESTABLISHED]
    return sum(address.port == port for address in ours if address)


def test_oversized_heads_are_refused(proxied: Server) -> None:
    with Wire(proxied.port) as wire:
        wire.send_what_it_takes(request("GET", "/healthz", "X-A: " + "a" * 1_000_000))
        assert wire.rest().split(b" ")[1] in (b"400", b"431")

"""Uploads and downloads of files with both clients, over connections that break."""

import io
import os
from pathlib import Path

import pytest

from quarterdeck.client import InvalidArgument, InvalidRequest, calls
from tests.client import faulty_proxy as bad
from tests.client.both_clients import KINDS, opened
from tests.client.faulty_proxy import Exchange, Proxy
from tests.world import Server, World

CONTENT = os.urandom(300_000)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "_FIRST_SECONDS", 0.01)


async def cuts_in_half(exchange: Exchange) -> None:
    head, _, body = (await exchange.answer()).partition(b"\r\n\r\n")
    await exchange.send(head + b"\r\n\r\n" + body[: len(body) // 2])


@pytest.mark.parametrize("kind", KINDS)
async def test_upload_attach_and_download(server: Server, world: World, kind: str, tmp_path: Path) -> None:
    (tmp_path / "numbers.bin").write_bytes(CONTENT)
    script = [bad.resets_after_the_effect, bad.cuts_the_body]
    async with Proxy(server, script).running() as proxy, opened(kind, proxy.url, world.key) as client:
        seen: list[tuple[int, int]] = []
        file = await client.call("upload", tmp_path / "numbers.bin", progress=lambda *done: seen.append(done))
        assert (file.name, file.bytes, seen[-1]) == ("numbers.bin", len(CONTENT), (len(CONTENT), len(CONTENT)))
        assert len(set(proxy.headers("idempotency-key"))) == 1
        assert len(proxy.requests) == 3
        stored = await world.fetch("SELECT count(*) FROM files WHERE workspace_id = %s", world.workspace_id)
        assert stored == [(1,)], "three attempts are one file"

    async with opened(kind, server.url, world.key) as client:
        note = await client.call("upload", b"Hello.", name="note.txt")
        assert note.media_type == "text/plain"
        with pytest.raises(InvalidArgument, match="name is required"):
            await client.call("upload", io.BytesIO(b"Hello."))
        end, start = os.pipe()
        os.write(start, b"Ahoy.")
        os.close(start)
        with os.fdopen(end, "rb") as pipe:
            assert (await client.call("upload", pipe, name="piped.txt")).bytes == 5
        session = await client.call("create_session", model="demo", sandbox=None)
        await client.call("submit_input", session.id, text="Read it.", attachments=[note.id])
        accepted = (await client.all("events", session.id, follow=False))[0]
        assert accepted.data["attachments"][0]["name"] == "note.txt"
        with pytest.raises(InvalidRequest, match=r"numbers\.bin"):
            await client.call("submit_input", session.id, text="And it.", attachments=[str(file.id)])

    # More interruptions than retries: each attempt continues where the one before was cut.
    script = [cuts_in_half, bad.resets_at_once, cuts_in_half, cuts_in_half, bad.cuts_the_body]
    async with Proxy(server, script).running() as proxy, opened(kind, proxy.url, world.key, retries=2) as client:
        assert await client.call("download_file", file.id, tmp_path / "copy.bin") == len(CONTENT)
    assert (tmp_path / "copy.bin").read_bytes() == CONTENT
    starts = [0, 150_000, 150_000, 225_000, 262_500, 299_995]
    assert proxy.headers("range") == ["" if start == 0 else f"bytes={start}-" for start in starts]
    assert proxy.headers("if-range")[1:] == [f'"{file.sha256}"'] * 5

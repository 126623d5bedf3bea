"""Blobs in a folder: whole, on the disk before it is said so, and nothing beside them."""

import io
import os
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from quarterdeck.blobs import blob_store
from quarterdeck.blobs.blob_store import BlobStore, open_blob_store
from quarterdeck.blobs.model import PIECE_BYTES, Blob
from quarterdeck.core.settings import BlobSettings

BLOB = Blob("ab" * 32, uuid4())
# Not a whole number of pieces.
ARCHIVE = os.urandom(5 * PIECE_BYTES + 1000)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "blobs"


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    return open_blob_store(BlobSettings(), tmp_path)


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """What was brought to the disk, in this order."""
    paths: list[Path] = []
    fsync = os.fsync

    def noting(descriptor: int) -> None:
        fsync(descriptor)
        paths.append(Path(f"/proc/self/fd/{descriptor}").readlink())

    monkeypatch.setattr(os, "fsync", noting)
    return paths


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


async def put(blobs: BlobStore, archive: io.BytesIO | None = None) -> None:
    await blobs.put_all({BLOB: archive or io.BytesIO(ARCHIVE)})


async def test_stored_archive_is_the_only_file(blobs: BlobStore, folder: Path) -> None:
    await put(blobs)
    await put(blobs)
    (path,) = files(folder)
    assert path.read_bytes() == ARCHIVE
    assert await blobs.read(BLOB, 10, 20) == ARCHIVE[10:20]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="names of open files are read from Linux's /proc")
async def test_is_on_the_disk_with_every_name_that_leads_to_it(
    blobs: BlobStore, folder: Path, synced: list[Path]
) -> None:
    await put(blobs)
    (path,) = files(folder)
    assert set(synced) == {folder, path.parent, path}
    assert synced.index(path) < synced.index(path.parent), "a name must not be there before its content"
    # A folder's own name is brought there once; in another process perhaps again.
    synced.clear()
    await put(blobs)
    assert synced == [path, path.parent]
    synced.clear()
    await put(open_blob_store(BlobSettings(), folder.parent))
    assert synced == [folder, path, path.parent]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs syncfs of Linux")
async def test_many_contents_are_brought_to_the_disk_together(
    blobs: BlobStore, folder: Path, synced: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = {Blob(f"{number:02x}" * 32, uuid4()): io.BytesIO(b"%d" % number) for number in range(200)}
    sync, there = blob_store._sync_all, []

    def noting(descriptor: int) -> None:
        there.append((Path(f"/proc/self/fd/{descriptor}").readlink(), len(files(folder))))
        sync(descriptor)

    monkeypatch.setattr(blob_store, "_sync_all", noting)
    await blobs.put_all(contents)
    assert there == [(folder, 200)], "once, after all are written"
    assert synced == [folder], "the names of subfolders"
    for number, blob in enumerate(contents):
        assert await blobs.read(blob, 0, 3) == b"%d" % number

    def failing(_: int) -> None:
        raise OSError("the disk is broken")

    monkeypatch.setattr(blob_store, "_sync_all", failing)
    with pytest.raises(OSError, match="broken"):
        await blobs.put_all(contents)


async def test_partial_file_of_a_crash_is_completed(blobs: BlobStore, folder: Path) -> None:
    await put(blobs)
    (path,) = files(folder)
    path.write_bytes(ARCHIVE[:1000])
    await put(blobs)
    assert path.read_bytes() == ARCHIVE


async def test_reader_during_a_second_write_sees_everything(blobs: BlobStore, folder: Path) -> None:
    await put(blobs)
    (path,) = files(folder)
    seen: list[bool] = []

    class Looking(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            seen.append(path.read_bytes() == ARCHIVE)
            return super().read(size)

    await put(blobs, Looking(ARCHIVE))
    assert len(seen) > len(ARCHIVE) // PIECE_BYTES, "more than a piece of it is held"
    assert all(seen)


async def test_a_write_that_fails_is_no_success(blobs: BlobStore, folder: Path) -> None:
    class Breaking(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell() > PIECE_BYTES:
                raise OSError("the disk is full")
            return super().read(size)

    with pytest.raises(OSError, match="full"):
        await put(blobs, Breaking(ARCHIVE))
    await put(blobs)
    (path,) = files(folder)
    assert path.read_bytes() == ARCHIVE


async def test_contents_are_looked_for_in_the_fallback(folder: Path, tmp_path: Path) -> None:
    old = open_blob_store(BlobSettings(store_url=f"file://{tmp_path / 'old'}"), tmp_path)
    both = open_blob_store(BlobSettings(fallback_store_url=f"file://{tmp_path / 'old'}"), tmp_path)
    await put(old)
    assert await both.read(BLOB, 10, 20) == ARCHIVE[10:20]
    assert next(both.pieces(BLOB)) == ARCHIVE[:PIECE_BYTES]
    assert b"".join(both.pieces(BLOB)) == ARCHIVE
    assert await both.size(BLOB) is None
    await put(both)
    assert (len(files(folder)), await both.size(BLOB)) == (1, len(ARCHIVE)), "written here only"
    await both.delete(BLOB)
    assert files(folder) + files(tmp_path / "old") == []
    with pytest.raises(FileNotFoundError):
        await both.read(BLOB, 0, 1)
    with pytest.raises(FileNotFoundError):
        next(both.pieces(BLOB))


async def test_a_content_that_moves_between_two_looks_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = open_blob_store(BlobSettings(fallback_store_url=f"file://{tmp_path / 'old'}"), tmp_path)
    looks = 0

    async def read(store: BlobStore, name: str, start: int, end: int) -> bytes:
        nonlocal looks
        looks += 1
        if looks == 2:
            # In the fallback: it has just been moved.
            await put(both)
        return await original(store, name, start, end)

    original = BlobStore._read
    monkeypatch.setattr(BlobStore, "_read", read)
    assert await both.read(BLOB, 0, 5) == ARCHIVE[:5]
    assert looks == 3

"""Folders of sessions: nothing outside is read or written, and what is stored was in a file of the folder."""

import hashlib
import os
import random
import shutil
import socket
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from quarterdeck.blobs.blob_store import BlobStore, open_blob_store
from quarterdeck.blobs.model import Blob
from quarterdeck.blobs.service import NewBlob
from quarterdeck.core.settings import BlobSettings, SandboxSettings
from quarterdeck.sandbox.beneath import make_folders, open_file, replace_file, reported
from quarterdeck.sandbox.checkout import read_contents
from quarterdeck.sandbox.folders import Folder, Folders
from quarterdeck.sandbox.manifest import FileChanges, FileKind, Manifest, ManifestFile, StoredFile
from quarterdeck.sandbox.model import Refusal
from quarterdeck.sandbox.run_folders import clean_path, folder_names, writable_path
from quarterdeck.sandbox.scan import Changed, Known, OutOfBounds, is_unchanged, modified_at, remove_tree, scan
from quarterdeck.sandbox.session_folder import SessionFolder
from tests.fuzzing import cases

SECRET = b"outside of the folder\n"
SWAPS = cases(5_000)


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_bytes(SECRET)
    folder = tmp_path / "inside"
    folder.mkdir()
    return folder


@pytest.fixture
def opened(inside: Path) -> Iterator[int]:
    descriptor = os.open(inside, os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


@pytest.mark.parametrize("path", ["../secret", "out", "out-dir/secret", "up/secret", "/etc/passwd", "self/secret"])
def test_paths_that_leave_the_folder(inside: Path, opened: int, path: str) -> None:
    (inside / "out").symlink_to(inside.parent / "secret")
    (inside / "out-dir").symlink_to(inside.parent)
    (inside / "up").symlink_to("..")
    (inside / "self").symlink_to(f"/proc/self/fd/{opened}/..")
    with pytest.raises(Refusal, match="leaves the folder of the session"), reported(path):
        open_file(opened, path)
    with pytest.raises(Refusal), reported(path):
        make_folders(opened, path, None)
    assert (inside.parent / "secret").read_bytes() == SECRET


def test_files_beneath_the_folder(inside: Path, opened: int) -> None:
    parent = make_folders(opened, "a/b", None)
    replace_file(parent, "f", [b"one"], None)
    (inside / "a/b/f").chmod(0o755)
    replace_file(parent, "f", [b"two"], None)
    assert (inside / "a/b/f").read_bytes() == b"two"
    assert stat.S_IMODE((inside / "a/b/f").stat().st_mode) == 0o755
    # A link is replaced, not followed.
    (inside / "a/b/l").symlink_to(inside.parent / "secret")
    replace_file(parent, "l", [b"three"], None)
    assert (inside.parent / "secret").read_bytes() == SECRET
    os.close(parent)
    (inside / "here").symlink_to("a/b")
    os.close(open_file(opened, "here/f"))
    os.mkfifo(inside / "fifo")
    for path in ("fifo", "a", "missing"):
        with pytest.raises(Refusal), reported(path):
            open_file(opened, path)
    assert sorted(os.listdir(inside / "a/b")) == ["f", "l"], "no temporary files are left"


def test_paths_of_tools() -> None:
    assert clean_path("/files/./a//b/") == "a/b"
    assert clean_path("/files") == clean_path(".") == ""
    for path in ("../a", "a/../b", "/etc", "/filesystem/a", "a\0b", "\ud800"):
        with pytest.raises(Refusal):
            clean_path(path)
    for path in ("skills/a", "./skills", "/files/skills/a/b", ""):
        with pytest.raises(Refusal):
            writable_path(path)
    assert folder_names(["pdf", "pdf (2)", "pdf-2", "../..", "."]) == {
        "pdf": "pdf",
        "pdf (2)": "pdf-2",
        "pdf-2": "pdf-2-2",
        "../..": "skill",
        ".": "skill-2",
    }


DEFAULTS = SandboxSettings()


def _scan(opened: int, settings: SandboxSettings = DEFAULTS) -> dict[str, FileKind]:
    return {path: found.kind for path, found in scan(opened, settings, os.geteuid(), lambda: False).found.items()}


def test_what_is_not_stored_is_removed(inside: Path, opened: int) -> None:
    (inside / "file").write_text("x")
    os.link(inside / "file", inside / "second")
    (inside / "link").symlink_to("./file")
    for name, target in {"absolute": "/etc/passwd", "up": "../secret", "up2": "d/../../secret"}.items():
        (inside / name).symlink_to(target)
    (inside / "empty/below").mkdir(parents=True)
    os.mkfifo(inside / "empty/fifo")
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(inside / "socket"))
    os.mkdir(os.fsencode(inside) + b"/\xff")
    (inside / "skills/pdf").mkdir(parents=True)
    if os.geteuid() == 0:
        (inside / "foreign").write_text("x")
        os.chown(inside / "foreign", 12345, 12345)
    kinds = {
        "file": FileKind.FILE,
        "second": FileKind.FILE,
        "link": FileKind.LINK,
        "empty/below": FileKind.FOLDER,
    }
    assert _scan(opened) == kinds
    assert scan(opened, DEFAULTS, os.geteuid(), lambda: False).removed == []
    assert sorted(os.listdir(inside)) == ["empty", "file", "link", "second"]


def test_deep_and_unreadable_folders_can_be_removed(inside: Path, opened: int) -> None:
    at = os.dup(opened)
    for _ in range(1_050):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.fchmod(at, 0)
    os.close(at)
    # What is too deep to be stored is removed.
    assert list(_scan(opened).values()) == [FileKind.FOLDER]
    remove_tree(opened, "d")
    assert os.listdir(inside) == []


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (SandboxSettings(files=2), "more than 2 files"),
        (SandboxSettings(all_files_bytes=8), "more than 8 bytes"),
        (SandboxSettings(file_bytes=4), "has 5 bytes"),
    ],
)
def test_bounds(inside: Path, opened: int, limits: SandboxSettings, reason: str) -> None:
    for name in ("a", "b"):
        (inside / name).write_text("12345"[: 4 if name == "a" else 5])
    (inside / "c").symlink_to("a")
    assert len(_scan(opened, SandboxSettings(files=3, all_files_bytes=9, file_bytes=5))) == 3
    with pytest.raises(OutOfBounds, match=reason):
        _scan(opened, limits)


def swapping(swap: Callable[[], None]) -> threading.Thread:
    def swap_often() -> None:
        for _ in range(SWAPS):
            swap()

    thread = threading.Thread(target=swap_often)
    thread.start()
    return thread


@pytest.mark.long
@pytest.mark.parametrize("at", ["file", "folder"])
def test_a_file_that_is_swapped_for_a_link_is_never_read(inside: Path, opened: int, tmp_path: Path, at: str) -> None:
    """Folders are only read when no process of the sandbox runs. If one did, this is what it would try."""
    (inside / "d").mkdir()
    (inside / "d/secret").write_bytes(b"inside")
    (tmp_path / "spool").mkdir()
    swapped, target = (inside / "d/secret", tmp_path / "secret") if at == "file" else (inside / "d", tmp_path)
    aside = inside / "aside"
    swapped.rename(aside)
    reads = 0

    def make_again() -> None:
        """The scan found a link, and removed what was at its path a moment later."""
        new = tmp_path / "new"
        new.write_bytes(b"inside")
        if at == "folder":
            aside.mkdir(exist_ok=True)
        new.rename(aside if at == "file" else aside / "secret")

    def swap() -> None:
        if not (aside if at == "file" else aside / "secret").exists():
            make_again()
        with suppress(FileNotFoundError):
            aside.rename(swapped)
            swapped.rename(aside)
        swapped.symlink_to(target)
        # The scan removes links that leave the folder.
        swapped.unlink(missing_ok=True)

    thread = swapping(swap)
    while thread.is_alive():
        try:
            found = [
                one
                for one in scan(opened, SandboxSettings(), os.geteuid(), lambda: False).found.values()
                if one.kind is FileKind.FILE
            ]
            for content in read_contents(opened, found, 1000, tmp_path / "spool", lambda: False):
                with content.spool as spool:
                    spool.seek(0)
                    assert spool.read() == b"inside"
                assert content.sha256 == hashlib.sha256(b"inside").hexdigest()
                reads += 1
        except (Changed, FileNotFoundError, NotADirectoryError):
            # A link was removed by the scan, or something was swapped meanwhile.
            continue
    thread.join()
    assert (tmp_path / "secret").read_bytes() == SECRET
    assert reads > 0
    assert FileKind.LINK not in _scan(opened).values()


class Memory:
    """A manifest in memory, with a real store of contents."""

    def __init__(self, folder: Path) -> None:
        self.session_id = uuid4()
        self.workspace_id = uuid4()
        self.blobs: BlobStore = open_blob_store(BlobSettings(), folder)
        self.files: dict[str, ManifestFile] = {}
        self.number = 0
        self.stored: set[str] = set()

    async def revision(self) -> int:
        return self.number

    async def manifest(self) -> Manifest:
        return Manifest(self.number, sorted(self.files.values(), key=lambda file: file.path))

    async def put(self, contents: Mapping[str, NewBlob]) -> None:
        for sha256, one in contents.items():
            await self.blobs.put_all({Blob(sha256, UUID(int=0)): one.content})
            self.stored.add(sha256)

    def apply(self, changes: FileChanges) -> int:
        for path in changes.deleted:
            del self.files[path]
        for file in changes.written:
            values = {field: getattr(file, field) for field in StoredFile.__struct_fields__}
            self.files[file.path] = ManifestFile(**values, generation=None if file.sha256 is None else UUID(int=0))
        self.number += 1
        return self.number


def tree(folder: Path) -> dict[str, tuple[object, ...]]:
    """All files with content, mode and time, links with their targets, and folders."""
    found: dict[str, tuple[object, ...]] = {}
    for path in folder.rglob("*"):
        status, name = path.lstat(), str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = ("link", os.readlink(path))
        elif path.is_dir():
            found[name] = ("folder",)
        else:
            found[name] = (path.read_bytes(), stat.S_IMODE(status.st_mode), status.st_mtime_ns // 1000)
    return found


def change_at_random(folder: Path, chance: random.Random) -> None:
    path = folder / "/".join(chance.choice("abc") for _ in range(chance.randint(1, 3)))
    with suppress(OSError):
        match chance.randint(0, 6):
            case 0 | 1 | 2:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(chance.choice([b"x", b"y", b"", b"z" * 300_000]))
            case 3:
                # Everything can still be listed, so that `tree` sees it also if the user is not root.
                path.chmod(chance.choice([0o644, 0o700, 0o555]) | (0o500 if path.is_dir() else 0))
            case 4:
                path.symlink_to(chance.choice(["a", "./b", "nowhere"]))
            case 5:
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
            case _:
                path.rename(folder / chance.choice("abc"))


async def test_another_worker_has_the_same_files(tmp_path: Path) -> None:
    """After any changes, a folder that is made anew and one that is brought up to date have the same files."""
    stored = Memory(tmp_path / "data")
    first, second = Folders(tmp_path / "one", None, 1), Folders(tmp_path / "two", None, 1)
    chance = random.Random(18)
    for number in range(60):
        trees: list[dict[str, tuple[object, ...]]] = []
        session_folder = SessionFolder(first if number % 3 else second, stored, SandboxSettings())

        def change(folder: Folder, trees: list[dict[str, tuple[object, ...]]] = trees) -> None:
            for _ in range(chance.randint(0, 5)):
                change_at_random(folder.path, chance)
            trees.append(tree(folder.path))

        _, changes, notice = await session_folder.write(change)
        assert notice == ""
        if changes is not None:
            session_folder.stored(stored.apply(changes))
        session_folder.close()
        for folders in (first, second, Folders(tmp_path / f"new-{number}", None, 1)):
            reader = SessionFolder(folders, stored, SandboxSettings())
            assert await reader.read(lambda folder: tree(folder.path)) == trees[0]
            reader.close()
            if folders not in (first, second):
                await folders.close()
    await first.close()
    await second.close()
    assert os.listdir(tmp_path / "one") == []


async def test_folders_that_their_owner_may_not_change(tmp_path: Path) -> None:
    """As an ordinary user, who is also the user of commands."""
    stored = Memory(tmp_path / "data")
    folders = Folders(tmp_path / "one", None, 1)

    def protect(folder: Folder) -> None:
        (folder.path / "a").mkdir()
        (folder.path / "a" / "f").write_text("x")
        os.mkfifo(folder.path / "a" / "pipe")
        (folder.path / "a").chmod(0o500)
        folder.path.chmod(0)

    session_folder = SessionFolder(folders, stored, SandboxSettings())
    _, changes, notice = await session_folder.write(protect)
    assert changes is not None
    assert "a/pipe" in notice
    session_folder.stored(stored.apply(changes))
    session_folder.close()
    stored.apply(FileChanges(written=[], deleted=list(stored.files)))
    reader = SessionFolder(folders, stored, SandboxSettings())
    assert await reader.read(lambda folder: tree(folder.path)) == {}
    reader.close()
    await folders.close()


def test_a_file_that_was_just_written_is_read_again(inside: Path, opened: int) -> None:
    """Kernels before 6.13 give two changes within a tick the same time."""
    (inside / "f").write_text("x")
    [found] = scan(opened, DEFAULTS, os.geteuid(), lambda: False).found.values()
    file = StoredFile(
        path="f",
        kind=FileKind.FILE,
        sha256="",
        bytes=1,
        mode=0o644,
        target=None,
        modified_at=modified_at(found.signature),
    )
    known, written_ns = Known(file, found.signature), found.signature.changed_ns
    assert not is_unchanged(known, found, written_ns + 10_000_000)
    assert is_unchanged(known, found, written_ns + 100_000_000)
    assert not is_unchanged(None, found, written_ns + 100_000_000)


async def test_changes_that_are_not_stored(tmp_path: Path) -> None:
    """A change that fails, or that is not stored, leaves nothing behind. Contents that are stored are not stored
    again."""
    stored, folders = Memory(tmp_path / "data"), Folders(tmp_path / "one", None, 1)
    session_folder = SessionFolder(folders, stored, SandboxSettings(file_bytes=100))

    async def write(text: str) -> FileChanges | None:
        return (await session_folder.write(lambda folder: (folder.path / "f").write_text(text)))[1]

    for number in range(30):
        changes = await write(f"{number:02}")
        assert changes is not None, "the change was not found"
        assert stored.apply(changes) == number + 1
        session_folder.stored(number + 1)
    stored.stored.clear()
    with pytest.raises(OutOfBounds):
        await write("x" * 101)

    def fail(folder: Folder) -> None:
        (folder.path / "f").write_text("broken")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        await session_folder.write(fail)

    def refuse(folder: Folder) -> None:
        (folder.path / "made").mkdir()
        raise Refusal("no")

    with pytest.raises(Refusal):
        await session_folder.write(refuse)
    assert await session_folder.read(lambda folder: sorted(os.listdir(folder.path))) == ["f"]
    await write("lost")
    session_folder.close()
    session_folder = SessionFolder(folders, stored, SandboxSettings())
    assert await session_folder.read(lambda folder: (folder.path / "f").read_text()) == "29"
    _, changes, _ = await session_folder.write(lambda folder: (folder.path / "f").rename(folder.path / "g"))
    assert changes is not None
    assert ([one.path for one in changes.written], changes.deleted) == (["g"], ["f"])
    assert stored.stored == {hashlib.sha256(b"lost").hexdigest()}
    session_folder.undo()
    await folders.close()


async def test_roots_of_dead_workers_are_removed(tmp_path: Path) -> None:
    base, dead = tmp_path / "base", tmp_path / "dead"
    base.mkdir()
    living = Folders(base, None, 1)
    (dead / "sessions/x").mkdir(parents=True)
    (dead / "sessions/x/file").write_text("left behind")
    # In one step: the living worker may just look for dead roots.
    dead.rename(base / "dead")
    kept = [living.take(uuid4(), uuid4()), living.take(uuid4(), uuid4())]
    for folder in kept:
        living.give_back(folder)
    after = Folders(base, None, 1)
    await after.close()
    assert os.listdir(base) == [living.root.name], "a living worker keeps its root"
    assert living.take(kept[1].session_id, uuid4()) is kept[1]
    assert living.take(kept[0].session_id, uuid4()) is not kept[0], "only one was kept"
    await living.close()
    assert os.listdir(base) == []

"""The container adapter: its command line, and real containers where podman with runc, or docker, is installed."""

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from quarterdeck.core.settings import SandboxSettings
from quarterdeck.sandbox.adapter import Command, ErrorTail, Service
from quarterdeck.sandbox.choice import find_sandbox
from quarterdeck.sandbox.container import Container, run_arguments, serve_arguments
from quarterdeck.sandbox.model import SandboxUnavailable
from tests.sandbox.accounts import account, run

_MIB = 1024 * 1024
_PROGRAMS = ("bash", "cat", "head", "id", "ls", "sleep", "timeout", "touch", "yes")


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = SandboxSettings(
        container_command="/usr/bin/podman", container_image="tools:1", memory_bytes=100 * _MIB, file_bytes=5000
    )
    with (tmp_path / "output").open("wb") as output:
        command = Command(
            arguments=["bash", "-c", "make"],
            folder=Path("/srv/one"),
            user_id=64_000,
            skills={"pdf": Path("/srv/pdf")},
            output=output,
            seconds=1.5,
        )
        as_root = run_arguments(settings, command, "name-1")
        monkeypatch.setattr(os, "geteuid", lambda: 1234)
        other = msgspec.structs.replace(command, user_id=None)
        as_other = run_arguments(settings, other, "name-1")
    text = " ".join(as_root)
    assert text == (
        "run --rm --init --pull never --name name-1 --hostname sandbox --network none --read-only --cap-drop ALL "
        "--security-opt no-new-privileges --user 64000:64000 --pids-limit 258 --memory 104857600 "
        "--memory-swap 104857600 --cpu-shares 512 --oom-score-adj 1000 --ulimit fsize=5000:5000 "
        "--ulimit nofile=1024:1024 --ulimit core=0:0 --tmpfs /tmp:rw,nosuid,nodev,mode=1777,size=268435456 "
        "--shm-size 268435456 --mount type=bind,source=/srv/one,target=/files "
        "--tmpfs /files/skills:rw,nosuid,nodev,mode=0755,size=1048576 "
        "--mount type=bind,source=/srv/pdf,target=/files/skills/pdf,readonly "
        "--env HOME=/tmp --env TMPDIR=/tmp --env USER=user --env LANG=C.UTF-8 --env TERM=xterm-256color "
        "--env PYTHONUNBUFFERED=1 --workdir /files --entrypoint timeout tools:1 -s KILL 7 bash -c make"
    )
    assert "--userns keep-id" in " ".join(as_other)
    assert "--user 1234:1234" in " ".join(as_other)


def test_the_command_line_of_a_service(tmp_path: Path) -> None:
    service = Service(
        workspace_id=uuid4(),
        arguments=["node", "server.js"],
        environment={"TOKEN": "the secret", "HOME": "/files"},
        network=True,
        readable=[Path("/opt/servers")],
        errors=ErrorTail(),
        buffer_bytes=_MIB,
    )
    text = " ".join(serve_arguments(SandboxSettings(container_image="tools:1"), service, [], "name-1", 64_000))
    assert text.startswith("run --interactive --rm --init --pull never --name name-1 --hostname sandbox --read-only ")
    assert "--mount type=bind,source=/opt/servers,target=/opt/servers,readonly" in text
    assert "--env TOKEN --env HOME " in text
    assert "--network" not in text
    assert "the secret" not in text
    assert text.endswith("bash node server.js")


async def test_what_is_missing_is_named() -> None:
    missing = {
        "QUARTERDECK_SANDBOX_CONTAINER_IMAGE is not set": SandboxSettings(kind="container"),
        "the program no-such-engine was not found": SandboxSettings(
            kind="container", container_image="x", container_command="no-such-engine"
        ),
        # It runs, and is no container engine.
        "the container does not work: a command could not use its folder": SandboxSettings(
            kind="container", container_image="x", container_command="true"
        ),
    }
    for message, settings in missing.items():
        with pytest.raises(SandboxUnavailable) as caught:
            await find_sandbox(settings, Path("/nonexistent"))
        assert str(caught.value) == message


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[SandboxSettings]:
    """Podman with an image made of a few programs of this machine, and a storage of its own."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("podman", "runc", "catatonit"))):
        pytest.skip("needs root, podman, runc and catatonit")
    command = tmp_path / "engine"
    # Podman allows only short paths.
    storage = tempfile.mkdtemp(dir="/var/tmp")
    options = f"--root {storage}/root --runroot {storage}/run --storage-driver vfs --runtime runc"
    command.write_text(
        f'#!/bin/sh\nif [ "$1" = run ]; then shift; set -- run --ulimit nproc=1000:1000 "$@"; fi\n'
        f'exec podman {options} --cgroup-manager cgroupfs "$@"\n'
    )
    command.chmod(0o755)
    image = tmp_path / "image"
    for name in _PROGRAMS:
        _copy_program(image, str(shutil.which(name)))
    subprocess.run(["tar", "-C", image, "-cf", tmp_path / "image.tar", "."], check=True)
    subprocess.run([command, "import", tmp_path / "image.tar", "tools:1"], check=True, capture_output=True)
    try:
        yield SandboxSettings(
            kind="container",
            container_command=str(command),
            container_image="tools:1",
            memory_bytes=64 * _MIB,
            processes=40,
            user_id=1_234_567,
        )
    finally:
        subprocess.run([command, "system", "reset", "--force"], check=True, capture_output=True)
        shutil.rmtree(storage)


def _copy_program(image: Path, program: str) -> None:
    libraries = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout.split()
    target = image / "bin" / Path(program).name
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(program, target)
    for library in (word for word in libraries if word.startswith("/")):
        (image / library[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, image / library[1:])


async def _try_services(sandbox: Container, readable: Path) -> None:
    script = (
        """echo "$PWD $SECRET $(ls -A) $(cat "$1"/SKILL.md)"; touch kept; read -r line; echo "got $line"; sleep 1000"""
    )
    for is_closed in (True, False):
        service = Service(
            workspace_id=uuid4(),
            arguments=["bash", "-c", script, "bash", str(readable)],
            environment={"SECRET": "of the operator"},
            network=False,
            readable=[readable],
            errors=ErrorTail(),
            buffer_bytes=_MIB,
        )
        async with sandbox.serve(service) as pipes:
            assert await pipes.stdout.readline() == b"/files of the operator  read me\n"
            pipes.stdin.write(b"one\n")
            assert await pipes.stdout.readline() == b"got one\n"
            if is_closed:
                # As after the death of the worker.
                pipes.stdin.write_eof()
                assert await pipes.stdout.read() == b""


@pytest.mark.long
async def test_commands_in_containers(engine: SandboxSettings, tmp_path: Path) -> None:
    with account("root") as worker:
        worker.user_id = engine.user_id
        folder, skill = worker.new_folder("own"), worker.new_folder("skill")
        (skill / "SKILL.md").write_text("read me\n")
        bounds = msgspec.structs.replace(engine, all_files_bytes=16 * _MIB, file_bytes=8 * _MIB)
        sandbox = Container(bounds, tmp_path)
        await sandbox.check()
        script = """
            id -u; cat skills/pdf/SKILL.md; touch kept
            touch /x skills/x skills/pdf/x 2>/dev/null && echo written
            (echo > /dev/tcp/127.0.0.1/22) 2>/dev/null && echo connected
            exit 3
        """
        ran = await run(sandbox, script, folder, pdf=skill)
        assert (ran.outcome.exit_code, ran.outcome.stopped, ran.output) == (3, None, "1234567\nread me\n")
        assert (folder / "kept").stat().st_uid == engine.user_id
        excesses = {
            "sleep 1000": "more than 2 s",
            "head -c 10G /dev/zero | cat > big; head -c 7M /dev/zero > b; head -c 7M /dev/zero > c; sleep 9": "16 MiB",
            "x=$(yes | head -c 1G); sleep 9": "64 MiB of memory",
        }
        for command, reason in excesses.items():
            ran = await run(sandbox, command, worker.new_folder(reason), 2.0 if "1000" in command else 60.0)
            assert reason in str(ran.outcome.stopped), (command, ran)
        task = asyncio.create_task(run(sandbox, "touch started; sleep 1000", folder))
        while not (folder / "started").exists():
            await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await _try_services(sandbox, skill)
        listed = subprocess.run([engine.container_command, "ps", "-aq"], check=True, capture_output=True)
        assert listed.stdout == b""
        assert worker.processes() == []

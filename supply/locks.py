"""The locks as data."""

import re
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

ROOT = Path(__file__).parents[1]
RUNTIME = ROOT / "requirements" / "runtime.lock"
DEV = ROOT / "requirements" / "dev.lock"

_PINNED = re.compile(r"([a-z0-9-]+)==(\S+)(?: ; (.+?))? \\")
_HASH = re.compile(r"    --hash=sha256:([0-9a-f]{64})(?: \\)?")


class Package(Struct, frozen=True):
    name: str
    version: str
    # Where it is installed: an environment marker, or None for everywhere.
    marker: str | None
    # SHA-256 of each file that may be installed: one for each platform, and the source.
    hashes: list[str]


def packages(lock: Path) -> list[Package]:
    return list(_read(lock.read_text("utf-8").splitlines()))


def _read(lines: list[str]) -> Iterator[Package]:
    """Every line is understood or it is a fault: what was passed over would be missing from every list."""
    package: Package | None = None
    for line in lines:
        if pinned := _PINNED.fullmatch(line):
            if package is not None:
                yield package
            package = Package(pinned[1], pinned[2], pinned[3], [])
        elif (found := _HASH.fullmatch(line)) and package is not None:
            package.hashes.append(found[1])
        else:
            raise ValueError(f"not a line of a lock: {line!r}")
    if package is not None:
        yield package

"""Temporary files, in memory while they are small. They have no name, so a crash leaves none."""

import tempfile
from pathlib import Path
from typing import IO

# Larger ones are on disk. Most bundles are a few kilobytes; the limit is megabytes.
_IN_MEMORY_BYTES = 256 * 1024


def open_spool(folder: Path) -> IO[bytes]:
    return tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES, dir=str(folder))


def spool_folder(data_dir: Path) -> Path:
    folder = data_dir / "spool"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder

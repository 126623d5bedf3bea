"""The size of a folder that hostile processes change at the same time. Links are not followed."""

import os
from contextlib import suppress

from msgspec import Struct

# Each level takes two descriptors while the folder is read.
MAX_DEPTH = 100


class FolderSize(Struct):
    bytes: int = 0
    files: int = 0
    depth: int = 0
    has_unreadable: bool = False


class FolderBounds(Struct, frozen=True):
    bytes: int
    files: int


def folder_size(folder: int, bounds: FolderBounds) -> FolderSize:
    """Ends early when a bound is exceeded. `folder` is a descriptor."""
    size = FolderSize()
    _add(folder, size, bounds, 0)
    return size


def is_within(size: FolderSize, bounds: FolderBounds) -> bool:
    fits = size.bytes <= bounds.bytes and size.files <= bounds.files
    return fits and size.depth <= MAX_DEPTH and not size.has_unreadable


def _add(folder: int, size: FolderSize, bounds: FolderBounds, depth: int) -> None:
    size.depth = max(size.depth, depth)
    with os.scandir(folder) as entries:
        for entry in entries:
            if not is_within(size, bounds):
                return
            size.files += 1
            # It may have been deleted since it was listed.
            with suppress(OSError):
                # As on the disk: a file with holes takes less than its size.
                size.bytes += entry.stat(follow_symlinks=False).st_blocks * 512
                if entry.is_dir(follow_symlinks=False):
                    _add_folder(folder, entry.name, size, bounds, depth + 1)


def _add_folder(parent: int, name: str, size: FolderSize, bounds: FolderBounds, depth: int) -> None:
    try:
        # O_NOFOLLOW: it may have become a link since it was listed.
        descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    except PermissionError:
        # Files could still be written there.
        size.has_unreadable = True
        return
    try:
        _add(descriptor, size, bounds, depth)
    finally:
        os.close(descriptor)

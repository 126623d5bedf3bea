"""Reads files of stored archives. Reading blocks, so these functions must run in threads.

A stored archive was checked when it was pushed. If it cannot be read now, or does not match its manifest, the error is
ours and not the caller's.
"""

from collections.abc import Iterable, Mapping

import msgspec

from quarterdeck.core import errors
from quarterdeck.core.settings import BundleSettings
from quarterdeck.skills.archive import Take
from quarterdeck.skills.archive import read_file as read_from
from quarterdeck.skills.archive import take_files as take_from
from quarterdeck.skills.bundle_store import BundleStore
from quarterdeck.skills.model import Archive, BundleError, ManifestFile

# An archive that was accepted once must not fail because the processor is slower today.
_TIME_FACTOR = 10


def read_file(
    bundles: BundleStore, archive: Archive, path: str, limits: BundleSettings, max_bytes: int
) -> bytes | None:
    """The first bytes of one file; None if there is no such file."""
    with bundles.open(archive.sha256, archive.generation) as source:
        return read_from(source, path, _with_more_time(limits), max_bytes)


def take_files(
    bundles: BundleStore, archive: Archive, takers: Mapping[ManifestFile, Take], limits: BundleSettings
) -> None:
    """Passes these files of the archive's manifest to their takers, complete."""
    by_path = {file.path: take for file, take in takers.items()}
    try:
        with bundles.open(archive.sha256, archive.generation) as source:
            found = take_from(source, _with_more_time(limits), by_path)
        _check_manifest(found, takers)
    except (BundleError, FileNotFoundError) as fault:
        raise errors.internal() from fault


def _check_manifest(found: Mapping[str, ManifestFile], listed: Iterable[ManifestFile]) -> None:
    for file in listed:
        if found.get(file.path) != file:
            raise BundleError("the stored archive does not hold what its manifest says.", path=file.path)


def _with_more_time(limits: BundleSettings) -> BundleSettings:
    return msgspec.structs.replace(limits, unpacking_seconds=limits.unpacking_seconds * _TIME_FACTOR)
